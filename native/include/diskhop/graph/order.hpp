// Numbering nodes by how often they are somebody's neighbour, most first: hot order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace diskhop {

// Id and Count are std::uint32_t or std::int64_t.

/// Adds how often each id occurs. Returns the position of the first id that is no node (0 .. counts.size() - 1), and
/// ids.size() where all are; the others are counted all the same. Threading: any number of callers on the same counts.
template <typename Id, typename Count>
[[nodiscard]] std::size_t count_ids(std::span<const Id> ids, std::span<Count> counts);

/// The nodes from the highest count to the lowest, ties to the lower id. Takes the result's memory once more.
template <typename Id, typename Count>
[[nodiscard]] std::vector<Id> order_by_count(std::span<const Count> counts);

/// What undoes a permutation: inverse[order[i]] = i. Throws std::invalid_argument for what is not one.
template <typename Id>
[[nodiscard]] std::vector<Id> invert_order(std::span<const Id> order);

/// renumbered[i] = new_ids[ids[i]]. Returns the position of the first id that is no node, and ids.size() where all are.
template <typename Given, typename Id>
[[nodiscard]] std::size_t renumber_ids(std::span<const Given> ids, std::span<const Id> new_ids,
                                       std::span<Id> renumbered);

}  // namespace diskhop
