// Prefetch distance of rows, in edges. The best one depends on the machine: on one, 32 took a third less time than 16
// and a fifth less than 64; on another, 64 to 128 took a fifth less than 32. So a pass tries several and continues with
// the fastest.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace diskhop {

inline constexpr std::size_t most_edges_ahead = 128;

/// Chooses the distance. Threading: any thread, for each of its turns: begin(), then end().
class PrefetchDistance {
 public:
  struct Turn {
    std::size_t edges_ahead = 0;
    std::size_t choice = 0;
    bool is_try = false;
    std::chrono::steady_clock::time_point begin;
  };

  [[nodiscard]] Turn begin() {
    // Relaxed, as all below: a time that arrives late changes no result.
    const std::uint64_t number = num_begun_.fetch_add(1, std::memory_order_relaxed);
    const bool is_try = number < num_tries;
    const std::size_t choice = is_try ? number % choices.size() : fastest();
    return {.edges_ahead = choices[choice],
            .choice = choice,
            .is_try = is_try,
            .begin = is_try ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{}};
  }

  void end(const Turn& turn, std::uint64_t num_edges) {
    if (!turn.is_try) return;
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - turn.begin;
    nanoseconds_[turn.choice].fetch_add(static_cast<std::uint64_t>(passed.count()), std::memory_order_relaxed);
    num_edges_[turn.choice].fetch_add(num_edges, std::memory_order_relaxed);
  }

 private:
  static constexpr std::array<std::size_t, 3> choices{32, 64, most_edges_ahead};
  // Turns of each choice; with pieces of 16,384 edges each takes a few milliseconds.
  static constexpr std::uint64_t num_tries = 32 * choices.size();

  [[nodiscard]] std::size_t fastest() const {
    std::size_t found = 0;
    double least = 0;
    for (std::size_t choice = 0; choice < choices.size(); ++choice) {
      const auto num_edges = static_cast<double>(num_edges_[choice].load(std::memory_order_relaxed));
      const auto nanoseconds = static_cast<double>(nanoseconds_[choice].load(std::memory_order_relaxed));
      if (num_edges == 0) continue;
      if (least == 0 || nanoseconds / num_edges < least) {
        least = nanoseconds / num_edges;
        found = choice;
      }
    }
    return found;
  }

  std::atomic<std::uint64_t> num_begun_ = 0;
  std::array<std::atomic<std::uint64_t>, choices.size()> nanoseconds_{};
  std::array<std::atomic<std::uint64_t>, choices.size()> num_edges_{};
};

}  // namespace diskhop
