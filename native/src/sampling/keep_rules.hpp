// Which edges of a hop's lists are kept, and their weights: the arithmetic of ImportanceMethod. All of it is that of
// IEEE 754, in the order of the lists, so that every machine gives the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "diskhop/base/random.hpp"
#include "sampling/node_draws.hpp"

namespace diskhop {

/// Returns the share of a list that is kept, n / length, at most 1.
[[nodiscard]] inline double kept_share(std::uint64_t length, std::uint64_t fanout) {
  return length <= fanout ? 1 : static_cast<double>(fanout) / static_cast<double>(length);
}

/// Returns the scale that makes a sum of min(1, scale * size) over some sizes `wanted`, or infinity if there are no
/// more sizes than that. Sum and count are of the sizes of which a predicate is true. measure(is_small): returns the
/// sum, as a double, and the count of sizes for which is_small(size) holds.
template <typename Measure>
[[nodiscard]] double find_scale(std::uint64_t count, std::uint64_t wanted, Measure measure) {
  if (count <= wanted) return std::numeric_limits<double>::infinity();
  double scale = 0;
  // Sizes that the scale raises to 1 leave less for the others, whose scale rises: until no more are raised.
  for (std::uint64_t num_raised = 0;;) {
    const auto [sum, num_small] = measure([scale](double size) { return scale * size < 1; });
    const std::uint64_t raised = count - num_small;
    if (scale > 0 && (raised == num_raised || raised >= wanted)) return scale;
    num_raised = raised;
    scale = static_cast<double>(wanted - raised) / sum;
  }
}

/// The same for sizes in memory.
[[nodiscard]] inline double find_scale(std::span<const double> sizes, std::uint64_t wanted) {
  return find_scale(sizes.size(), wanted, [sizes](auto is_small) {
    std::pair<double, std::uint64_t> small{0, 0};
    for (const double size : sizes) {
      if (!is_small(size)) continue;
      small.first += size;
      ++small.second;
    }
    return small;
  });
}

/// The same for the in-degrees of a graph, plus 1.
[[nodiscard]] inline double find_degree_scale(std::span<const std::int64_t> indptr, std::uint64_t wanted) {
  return find_scale(indptr.size() - 1, wanted, [indptr](auto is_small) {
    std::uint64_t sum = 0;
    std::uint64_t count = 0;
    for (std::size_t node = 0; node + 1 < indptr.size(); ++node) {
      // Unsigned: the difference of damaged starts, which are refused where a list is read, may be too large.
      const auto size = static_cast<std::uint64_t>(indptr[node + 1]) - static_cast<std::uint64_t>(indptr[node]) + 1;
      const bool is_counted = is_small(static_cast<double>(size));
      sum += is_counted ? size : 0;
      count += is_counted ? 1 : 0;
    }
    return std::pair{static_cast<double>(sum), count};
  });
}

/// Replaces sizes of nodes by the probabilities of those with the `count` smallest draw / size, and by 0 for the
/// others. Of equal ones the node that comes first is taken. Threading: one thread at a time.
class PrioritySampler {
 public:
  void choose(std::span<const std::uint64_t> nodes, std::span<double> sizes, std::uint64_t count,
              const NodeDraws& draw) {
    if (sizes.size() <= count) {
      std::ranges::fill(sizes, 1.0);
      return;
    }
    ranked_.clear();
    for (std::size_t place = 0; place < sizes.size(); ++place) {
      ranked_.emplace_back(as_fraction(draw(nodes[place])) / sizes[place], place);
    }
    const auto next = ranked_.begin() + static_cast<std::ptrdiff_t>(count);
    std::ranges::nth_element(ranked_, next);
    for (auto left_out = next; left_out != ranked_.end(); ++left_out) sizes[left_out->second] = 0;
    for (auto chosen = ranked_.begin(); chosen != next; ++chosen) {
      sizes[chosen->second] = std::min(1.0, sizes[chosen->second] * next->first);
    }
  }

  [[nodiscard]] std::size_t num_bytes() const { return ranked_.capacity() * sizeof(ranked_[0]); }

 private:
  std::vector<std::pair<double, std::size_t>> ranked_;  // draw / size, and place
};

}  // namespace diskhop
