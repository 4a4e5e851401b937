#include <algorithm>
#include <stdexcept>
#include <vector>

#include "hops/list_pieces.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

// Bytes of a thread's sums, which stay in its caches.
constexpr std::size_t max_scratch_bytes = 16 << 10;
constexpr std::size_t max_chunk_rows = 256;

/// Puts the sums of a chunk of rows where they belong: in place of what is there if a row begins in this call.
struct PutChunk {
  const std::int64_t* indptr;  // of the first row
  std::int64_t first_edge;     // of the call
  std::size_t num_rows;
  const float* sums;
  const Matrix<float>& out;
  std::size_t first_row;

  [[gnu::always_inline]] void operator()() const {
    const std::size_t num_columns = out.num_columns;
    for (std::size_t row = 0; row < num_rows; ++row) {
      if (indptr[row] == indptr[row + 1]) continue;
      const float* const from = sums + row * num_columns;
      float* const to = out.data + (first_row + row) * out.stride;
      if (indptr[row] >= first_edge) {
        for (std::size_t column = 0; column < num_columns; ++column) to[column] = from[column];
      } else {
        for (std::size_t column = 0; column < num_columns; ++column) to[column] += from[column];
      }
    }
  }
};

/// Sums of one call: each thread's scratch, and the part of each turn's first row if earlier turns have others.
class NeighborSumming {
 public:
  NeighborSumming(const StreamedLists& lists, const Block& block, const Matrix<float>& out, std::size_t num_turns,
                  std::size_t num_lanes, InstructionSet instructions)
      : lists_(lists),
        block_(block),
        out_(out),
        instructions_(instructions),
        chunk_rows_(
            std::clamp<std::size_t>(max_scratch_bytes / (block.num_columns * sizeof(float)), 4, max_chunk_rows)),
        scratch_(num_lanes * chunk_rows_ * block.num_columns),
        heads_(num_turns * block.num_columns) {}

  void sum(const PieceTurn& turn, std::size_t lane, std::size_t edges_ahead) {
    const std::size_t num_columns = block_.num_columns;
    float* const sums = scratch_.data() + lane * chunk_rows_ * num_columns;
    ListPart part{.indices = turn.indices,
                  .index_bytes = lists_.index_bytes,
                  .first_edge = turn.first_edge,
                  .end_edge = turn.end_edge,
                  .edges_ahead = edges_ahead};
    for (std::size_t row = turn.begin_row; row < turn.end_row; row += part.num_rows) {
      part.ends = lists_.indptr.data() + row + 1;
      part.num_rows = std::min(turn.end_row - row, chunk_rows_);
      sum_lists(part, block_, sums, instructions_);
      const std::size_t num_heads = turn.has_head && row == turn.begin_row ? 1 : 0;
      if (num_heads == 1) std::copy_n(sums, num_columns, heads_.data() + turn.number * num_columns);
      run_with(instructions_,
               PutChunk{lists_.indptr.data() + row + num_heads, lists_.first_edge, part.num_rows - num_heads,
                        sums + num_heads * num_columns, out_, row + num_heads});
      const std::int64_t next_edge = std::min(part.ends[part.num_rows - 1], part.end_edge);
      part.indices += (next_edge - part.first_edge) * lists_.index_bytes;
      part.first_edge = next_edge;
    }
  }

  void add_head(std::size_t row, std::size_t turn) {
    const float* const from = heads_.data() + turn * block_.num_columns;
    float* const to = out_.data + row * out_.stride;
    for (std::size_t column = 0; column < block_.num_columns; ++column) to[column] += from[column];
  }

 private:
  const StreamedLists& lists_;
  const Block& block_;
  const Matrix<float>& out_;
  InstructionSet instructions_;
  std::size_t chunk_rows_;
  std::vector<float> scratch_;  // a chunk of rows per lane
  std::vector<float> heads_;    // a row per turn
};

/// Fills rows without edges that lie among the edges in memory with zeros.
void clear_empty_rows(const StreamedLists& lists, const Matrix<float>& out) {
  const std::span<const std::int64_t> begins = lists.indptr.first(lists.num_rows());
  const auto first = std::lower_bound(begins.begin(), begins.end(), lists.first_edge) - begins.begin();
  const std::int64_t end_edge = lists.first_edge + lists.num_edges;
  for (auto row = static_cast<std::size_t>(first); row < begins.size() && begins[row] <= end_edge; ++row) {
    if (lists.indptr[row] == lists.indptr[row + 1]) std::fill_n(out.data + row * out.stride, out.num_columns, 0.0F);
  }
}

}  // namespace

void add_neighbor_sums(const StreamedLists& lists, const Block& block, const Matrix<float>& out, unsigned num_threads,
                       PrefetchDistance& edges_ahead, InstructionSet instructions) {
  ListPieces pieces(lists, block.num_rows, instructions);
  if (out.num_rows != lists.num_rows() || out.num_columns != block.num_columns) {
    throw std::invalid_argument("neighbor sums: out must have the rows of the lists and the columns of the block");
  }
  if (out.num_rows > 1 && out.stride < out.num_columns)
    throw std::invalid_argument("neighbor sums: rows of out must not overlap");
  if (block.num_columns == 0) return;
  NeighborSumming summing(lists, block, out, pieces.num_turns(), pieces.num_lanes(num_threads), instructions);
  pieces.share(num_threads, [&](const PieceTurn& turn, std::size_t lane) {
    const PrefetchDistance::Turn ahead = edges_ahead.begin();
    summing.sum(turn, lane, ahead.edges_ahead);
    edges_ahead.end(ahead, turn.num_edges());
  });
  clear_empty_rows(lists, out);
  pieces.for_each_head([&](std::size_t row, std::size_t turn) { summing.add_head(row, turn); });
}

}  // namespace diskhop
