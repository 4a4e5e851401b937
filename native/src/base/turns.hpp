// Dynamic work sharing by *turns*: each thread takes the next turn until none is left, so no thread waits for a slow
// one.
#pragma once

#include <atomic>
#include <cstddef>

namespace diskhop {

/// Calls run(data) in up to num_threads threads at once, the caller's among them, and returns when all have returned.
/// Uses OpenMP's threads (torch's) if the process has them: these spin while they wait for work, so other threads would
/// compete with them for cores. They do not survive a fork: a child forked afterwards must not call this. `run` must
/// not throw.
void run_in_threads(std::size_t num_threads, void (*run)(void* data), void* data);

/// Calls work(turn, lane) for every turn below num_turns, in up to num_threads threads; `lane`, below num_threads, is a
/// thread's number. `work` must not throw.
template <typename Work>
void share_turns(std::size_t num_turns, std::size_t num_threads, const Work& work) {
  struct Share {
    const Work& work;
    std::size_t num_turns;
    std::atomic<std::size_t> next_turn{0};
    std::atomic<std::size_t> next_lane{0};
  };
  Share share{work, num_turns};
  const auto take_turns = [](void* data) {
    auto& shared = *static_cast<Share*>(data);
    // Relaxed: turns are disjoint, and the end of the threads' work publishes their results.
    const std::size_t lane = shared.next_lane.fetch_add(1, std::memory_order_relaxed);
    while (true) {
      const std::size_t turn = shared.next_turn.fetch_add(1, std::memory_order_relaxed);
      if (turn >= shared.num_turns) return;
      shared.work(turn, lane);
    }
  };
  run_in_threads(num_threads < num_turns ? num_threads : num_turns, take_turns, &share);
}

}  // namespace diskhop
