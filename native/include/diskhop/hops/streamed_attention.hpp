// Attention over streamed lists (Velickovic et al., 2018), in two passes over the edges: first the norms of each row's
// softmax, then the sums of rows by it. Self-loops that are not in the lists are the caller's.
//
// Scores are leaky_relu(source score + target score). Bits depend neither on threads nor on instruction sets, nor on
// how edges are divided among calls; see streamed_lists.hpp. Values that are infinite or NaN reach the sums of their
// row.
#pragma once

#include <cstddef>
#include <span>

#include "diskhop/hops/prefetch_distance.hpp"
#include "diskhop/hops/propagate.hpp"
#include "diskhop/hops/streamed_lists.hpp"
#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Adds the edges in memory to norms (rows, 2 heads): in the first half of a row's columns the largest score of each
/// head, which starts at -infinity, in the second half the sum of exp(score - largest score), which starts at 0. Each
/// piece has its own norms, from runs of 128 edges, which are then merged in order. source_scores: (sources, heads).
/// target_scores: (rows, heads).
///
/// Throws std::invalid_argument for sizes that do not match, before anything is written, and DamagedListsError. After
/// the latter, norms are invalid; no row that does not exist was read.
void add_attention_norms(const StreamedLists& lists, const Matrix<const float>& source_scores,
                         const Matrix<const float>& target_scores, float negative_slope, const Matrix<float>& norms,
                         unsigned num_threads, InstructionSet instructions = best_instruction_set());

/// Columns of one head that lie in a block. Up to 3 columns of the block after the last one are read too, so that all
/// are whole quads; their values do not matter.
struct AttendedHead {
  std::size_t head = 0;          // number of the head: its column of target_scores and of norms
  std::size_t score_column = 0;  // column of the block with the sources' scores
  std::size_t first_column = 0;  // columns of the block with the sources' values
  std::size_t num_columns = 0;
  std::size_t out_column = 0;  // column of out that the first one is added to
};

/// Scores of the rows, complete norms of all edges and self-loops, and the slope of scores below zero.
struct AttentionTargets {
  Matrix<const float> scores;  // (rows, heads)
  Matrix<const float> norms;   // (rows, 2 heads)
  float negative_slope = 0;
};

/// Adds to out (rows, any number of columns), for each of these heads, the sum over a row's edges in memory of the
/// source's columns times the attention: exp(score - largest score) / sum. Runs and pieces as for add_neighbor_sums();
/// throws as that.
void add_attended_rows(const StreamedLists& lists, const Block& block, std::span<const AttendedHead> heads,
                       const AttentionTargets& targets, const Matrix<float>& out, unsigned num_threads,
                       PrefetchDistance& edges_ahead, InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
