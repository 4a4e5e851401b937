// Draws from one neighbour list that depend on the weights and times of its edges. All arithmetic is that of IEEE 754,
// without the C library's functions, so that every machine gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace diskhop {

/// Returns -log(u) for the uniform draw u = (draw >> 12 + 1/2) / 2^52, which is never 0 or 1. Error: below 4 units in
/// the last place.
[[nodiscard]] double negative_log(std::uint64_t draw);

/// Chooses offsets of one list after another; keeps its memory. Threading: one thread at a time.
class ListPicker {
 public:
  /// Writes `count` offsets below degree, each drawn independently.
  static void draw_again(std::uint64_t degree, std::uint64_t count, std::uint64_t node_key, std::uint64_t* offsets);

  /// Appends the offsets of up to `count` edges, without repeats: those with the smallest -log(u) / weight, ascending
  /// (Efraimidis and Spirakis, 2006), which is drawing one after another with probabilities in proportion to the
  /// weights. Edges of weight 0 are never drawn. If no more than `count` have a weight, all of them, in their order.
  void pick_weighted(std::span<const double> weights, std::uint64_t count, std::uint64_t node_key,
                     std::vector<std::uint64_t>& offsets);

  /// Appends `count` offsets, each drawn independently in proportion to the weights; none if all weights are 0. Throws
  /// std::domain_error for a sum that is not finite.
  void draw_weighted_again(std::span<const double> weights, std::uint64_t count, std::uint64_t node_key,
                           std::vector<std::uint64_t>& offsets);

  /// Appends the offsets of the edges that are not later than a limit, in their order.
  static void pick_until(std::span<const std::int64_t> times, std::int64_t limit, std::vector<std::uint64_t>& offsets);

  /// Keeps the latest `count` offsets, by time and then offset, ascending.
  void keep_latest(std::span<const std::int64_t> times, std::uint64_t count, std::vector<std::uint64_t>& offsets);

  [[nodiscard]] std::size_t num_bytes() const {
    return keyed_.capacity() * sizeof(Keyed) + sums_.capacity() * sizeof(double);
  }

 private:
  using Keyed = std::pair<double, std::uint64_t>;  // key and offset
  std::vector<Keyed> keyed_;
  std::vector<double> sums_;
};

}  // namespace diskhop
