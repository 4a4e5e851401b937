// Sums over neighbour lists that stream through memory, some edges at a time, each added to what earlier calls left.
//
// Edges are numbered as in the edge array. Lists are summed in pieces (see piece_edges), and a row's pieces are added
// in order. So bits depend neither on threads nor on instruction sets, and not on how edges are divided among calls, as
// long as each division is at a multiple of piece_edges or where a row begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diskhop/hops/prefetch_distance.hpp"
#include "diskhop/hops/propagate.hpp"
#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// In-neighbour lists of consecutive rows, and those edges that are in memory. Edges of other rows are ignored.
struct StreamedLists {
  std::span<const std::int64_t> indptr;  // (rows + 1)
  const std::byte* indices = nullptr;    // uint32 or int64
  unsigned index_bytes = 4;
  std::int64_t first_edge = 0;  // number of the first edge in memory
  std::int64_t num_edges = 0;   // number of edges in memory

  [[nodiscard]] std::size_t num_rows() const noexcept { return indptr.empty() ? 0 : indptr.size() - 1; }
};

/// Adds to out (rows, columns of the block), for each row, the sum of the block's rows that its edges in memory name:
/// runs of 128 edges, counted from where the piece or the row begins, are added edge by edge, then run by run. A row
/// whose list begins among the edges in memory, or right behind them if it is empty, is set instead, whatever it was.
/// So calls over consecutive edges end with a pass's sums. A call takes memory for one row of out per piece.
///
/// Throws std::invalid_argument for sizes that do not match, before anything is written, and DamagedListsError. After
/// the latter, out is invalid; no row that does not exist was read.
void add_neighbor_sums(const StreamedLists& lists, const Block& block, const Matrix<float>& out, unsigned num_threads,
                       PrefetchDistance& edges_ahead, InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
