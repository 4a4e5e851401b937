#include "diskhop/graph/order.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>

#include "base/radix_sort.hpp"

namespace diskhop {
namespace {

// A locked add waits for its cache line, and no later instruction starts meanwhile: the line is prefetched well ahead.
constexpr std::size_t prefetch_distance = 24;

template <typename Id>
[[nodiscard]] bool is_node(Id id, std::size_t num_nodes) {
  return static_cast<std::uint64_t>(id) < num_nodes;  // a negative id is a very large one
}

}  // namespace

template <typename Id, typename Count>
std::size_t count_ids(std::span<const Id> ids, std::span<Count> counts) {
  std::size_t first_bad = ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i + prefetch_distance < ids.size() && is_node(ids[i + prefetch_distance], counts.size())) {
      __builtin_prefetch(&counts[static_cast<std::size_t>(ids[i + prefetch_distance])], 1);
    }
    if (!is_node(ids[i], counts.size())) {
      first_bad = std::min(first_bad, i);
      continue;
    }
    // Relaxed: sums only, read after the threads are joined.
    std::atomic_ref<Count>(counts[static_cast<std::size_t>(ids[i])]).fetch_add(1, std::memory_order_relaxed);
  }
  return first_bad;
}

template <typename Id, typename Count>
std::vector<Id> order_by_count(std::span<const Count> counts) {
  const Count most = counts.empty() ? Count{0} : *std::max_element(counts.begin(), counts.end());
  std::vector<Id> order(counts.size());
  for (std::size_t node = 0; node < order.size(); ++node) order[node] = static_cast<Id>(node);
  radix_sort(order, static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(most))), [&](Id node) {
    return static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(counts[static_cast<std::size_t>(node)]);
  });
  return order;
}

template <typename Id>
std::vector<Id> invert_order(std::span<const Id> order) {
  constexpr Id missing = static_cast<Id>(-1);
  std::vector<Id> inverse(order.size(), missing);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!is_node(order[i], order.size())) throw std::invalid_argument("an id is out of range");
    inverse[static_cast<std::size_t>(order[i])] = static_cast<Id>(i);
  }
  if (std::find(inverse.begin(), inverse.end(), missing) != inverse.end()) {
    throw std::invalid_argument("an id occurs twice");
  }
  return inverse;
}

template <typename Given, typename Id>
std::size_t renumber_ids(std::span<const Given> ids, std::span<const Id> new_ids, std::span<Id> renumbered) {
  if (renumbered.size() != ids.size()) throw std::invalid_argument("there must be a place for each id");
  std::size_t first_bad = ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!is_node(ids[i], new_ids.size())) {
      first_bad = std::min(first_bad, i);
      continue;
    }
    renumbered[i] = new_ids[static_cast<std::size_t>(ids[i])];
  }
  return first_bad;
}

using Narrow = std::uint32_t;
using Wide = std::int64_t;

template std::size_t count_ids(std::span<const Narrow>, std::span<Narrow>);
template std::size_t count_ids(std::span<const Narrow>, std::span<Wide>);
template std::size_t count_ids(std::span<const Wide>, std::span<Narrow>);
template std::size_t count_ids(std::span<const Wide>, std::span<Wide>);
template std::vector<Narrow> order_by_count(std::span<const Narrow>);
template std::vector<Narrow> order_by_count(std::span<const Wide>);
template std::vector<Wide> order_by_count(std::span<const Narrow>);
template std::vector<Wide> order_by_count(std::span<const Wide>);
template std::vector<Narrow> invert_order(std::span<const Narrow>);
template std::vector<Wide> invert_order(std::span<const Wide>);
template std::size_t renumber_ids(std::span<const Narrow>, std::span<const Narrow>, std::span<Narrow>);
template std::size_t renumber_ids(std::span<const Narrow>, std::span<const Wide>, std::span<Wide>);
template std::size_t renumber_ids(std::span<const Wide>, std::span<const Narrow>, std::span<Narrow>);
template std::size_t renumber_ids(std::span<const Wide>, std::span<const Wide>, std::span<Wide>);

}  // namespace diskhop
