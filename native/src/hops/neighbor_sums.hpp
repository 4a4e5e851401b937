// Sums of a block's rows over part of the edge array: the inner loop of a pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "diskhop/hops/propagate.hpp"

namespace diskhop {

/// Consecutive rows, and their edges from first_edge (the first of `indices`, and of `weights` if there are any) to
/// end_edge. Row r's edges end at ends[r], or at end_edge if that comes first. Up to this many indices beyond the last
/// edge are read, for prefetching; their values do not matter.
struct ListPart {
  const std::byte* indices = nullptr;
  unsigned index_bytes = 4;
  const float* weights = nullptr;
  const std::int64_t* ends = nullptr;
  std::size_t num_rows = 0;
  std::int64_t first_edge = 0;
  std::int64_t end_edge = 0;
  std::size_t edges_ahead = 32;
};

/// Fills sums (rows, columns of the block) with the weighted sum of each row's edges, in order, by runs of 128.
void sum_lists(const ListPart& part, const Block& block, float* sums, InstructionSet instructions);

/// Largest index of edges [first_edge, end_edge); negative ones count as the largest.
[[nodiscard]] std::uint64_t largest_index(const ListPart& part, InstructionSet instructions);

}  // namespace diskhop
