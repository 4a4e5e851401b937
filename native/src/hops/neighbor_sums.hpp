// Sums of a block's rows over part of the edge array: the inner loop of a pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "diskhop/hops/propagate.hpp"

namespace diskhop {

/// Rows that follow each other, and their edges from first_edge, whose index is the first of `indices`, up to end_edge.
/// Row r's edges end at ends[r], or at end_edge where that comes first. So many indices past the last edge are looked
/// at, to ask for rows ahead of their turn; any values will do.
struct ListPart {
  const std::byte* indices = nullptr;
  unsigned index_bytes = 4;
  const std::int64_t* ends = nullptr;
  std::size_t num_rows = 0;
  std::int64_t first_edge = 0;
  std::int64_t end_edge = 0;
  std::size_t edges_ahead = 32;
};

/// sums (rows, columns of the block): of each row's edges, in order, by runs of 128.
void sum_lists(const ListPart& part, const Block& block, float* sums, InstructionSet instructions);

/// The largest of the indices of edges [first_edge, end_edge); negative ones are the largest of all.
[[nodiscard]] std::uint64_t largest_index(const ListPart& part, InstructionSet instructions);

}  // namespace diskhop
