// Hot order: nodes numbered by how often they occur as neighbours, the most frequent first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace diskhop {

// Id and Count are std::uint32_t or std::int64_t.

/// Adds the number of occurrences of each id to counts. Returns the position of the first id outside 0 .. counts.size()
/// - 1, or ids.size() if there is none; valid ids are counted in any case. Threading: any number of callers on the same
/// counts.
template <typename Id, typename Count>
[[nodiscard]] std::size_t count_ids(std::span<const Id> ids, std::span<Count> counts);

/// Sorts nodes from the highest count to the lowest, ties to the lower id. Memory: the result, twice.
template <typename Id, typename Count>
[[nodiscard]] std::vector<Id> order_by_count(std::span<const Count> counts);

/// Inverts a permutation: inverse[order[i]] = i. Throws std::invalid_argument if order is not a permutation.
template <typename Id>
[[nodiscard]] std::vector<Id> invert_order(std::span<const Id> order);

/// Sets renumbered[i] to new_ids[ids[i]]. Returns the position of the first id that is no node, or ids.size().
template <typename Given, typename Id>
[[nodiscard]] std::size_t renumber_ids(std::span<const Given> ids, std::span<const Id> new_ids,
                                       std::span<Id> renumbered);

}  // namespace diskhop
