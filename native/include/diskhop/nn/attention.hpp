// Attention over neighbour lists (Velickovic et al., 2018): softmax over each target's in-edges, and weighted sums of
// rows by it, forward and backward. No array of size (edges, columns) is ever made.
//
// A *slot* is an edge or the self-loop that every target gets. Target t has the slots indptr[t] + t .. indptr[t + 1] +
// t: its edges in order, then the loop. An edge of the graph from a target to itself is replaced by the loop: its
// attention is 0. In lists without loops, slots are the edges, and all of them count.
//
// No result depends on num_threads or on the instruction set: sums are in float, in the order of the slots. All
// functions throw std::invalid_argument for sizes that do not match and std::out_of_range for a source outside its
// rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Neighbour lists of the targets. With loops, the targets are the first of the source rows.
struct NeighborLists {
  std::span<const std::int32_t> indptr;   // (targets + 1)
  std::span<const std::int32_t> sources;  // at least indptr.back()
  bool has_loops = true;

  [[nodiscard]] std::size_t num_targets() const noexcept { return indptr.size() - 1; }
  [[nodiscard]] std::size_t num_slots() const noexcept {
    return static_cast<std::size_t>(indptr.back()) + (has_loops ? num_targets() : 0);
  }
};

/// Dropout of attention after the softmax. probability: from 0 to 1. The dropped slots depend on the seed, the target,
/// the slot's place in its list and the head.
struct AttentionDropout {
  double probability = 0;
  std::uint64_t seed = 0;

  /// Factor of the attention of kept slots.
  [[nodiscard]] float scale() const noexcept {
    return probability < 1 ? static_cast<float>(1 / (1 - probability)) : 0.0F;
  }
};

/// Scores before the softmax: leaky_relu(source score + target score).
struct AttentionScores {
  Matrix<const float> of_sources;  // (rows, heads)
  Matrix<const float> of_targets;  // (targets, heads)
  float negative_slope = 0;
};

/// Fills attention (slots, heads) with the softmax of the scores over each target's slots. A dropped slot has the sign
/// bit set.
void attention(const NeighborLists& lists, const AttentionScores& scores, const AttentionDropout& dropout,
               const Matrix<float>& attention, unsigned num_threads,
               InstructionSet instructions = best_instruction_set());

/// Fills the gradients of the scores, given grad_attention (slots, heads), the gradient of the attention without its
/// signs. Sources that no slot reads get 0. Threads share the sources.
void attention_backward(const NeighborLists& lists, const AttentionScores& scores, const Matrix<const float>& attention,
                        const Matrix<const float>& grad_attention, const Matrix<float>& grad_of_sources,
                        const Matrix<float>& grad_of_targets, unsigned num_threads,
                        InstructionSet instructions = best_instruction_set());

/// Fills attention (slots, heads) with the softmax of any scores (slots, heads) over each target's slots. Lists have no
/// loops. A dropped slot has the sign bit set.
void slot_softmax(const NeighborLists& lists, const Matrix<const float>& scores, const AttentionDropout& dropout,
                  const Matrix<float>& attention, unsigned num_threads,
                  InstructionSet instructions = best_instruction_set());

/// Fills the gradient of slot_softmax()'s scores, given that of the attention without its signs.
void slot_softmax_backward(const NeighborLists& lists, const Matrix<const float>& attention,
                           const Matrix<const float>& grad_attention, const Matrix<float>& grad_scores,
                           unsigned num_threads, InstructionSet instructions = best_instruction_set());

/// A factor per slot and head.
struct SlotWeights {
  Matrix<const float> values;  // (slots, heads)
  float scale = 1;             // multiplies all of them
  bool is_attention = true;    // whether a set sign bit marks a dropped slot; otherwise values may be negative
};

/// A range of targets; other arrays have rows for this range only.
struct TargetRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Fills out (targets of the range, heads * dim): per head the sum of the slots' rows, each times its weight.
/// rows: (sources, heads * dim), where each head reads its own columns, or (sources, dim), which all heads read.
/// Value: float or Bfloat16.
template <typename Value>
void attend(const NeighborLists& lists, TargetRange range, const SlotWeights& weights, const Matrix<const Value>& rows,
            const Matrix<float>& out, unsigned num_threads, InstructionSet instructions = best_instruction_set());

/// Fills the gradient of the weights for the range's slots (others do not change), given that of attend()'s out: for
/// kept slots the product of the row and the gradient times scale, for dropped ones 0.
template <typename Value>
void attend_backward_attention(const NeighborLists& lists, TargetRange range, const SlotWeights& weights,
                               const Matrix<const Value>& rows, const Matrix<const float>& grad_out,
                               const Matrix<float>& grad_attention, unsigned num_threads,
                               InstructionSet instructions = best_instruction_set());

/// Fills products (slots, heads) with the inner product of each slot's row and its target's row, by head. rows:
/// (sources, heads * dim); targets: (targets, heads * dim).
template <typename Value>
void slot_products(const NeighborLists& lists, const Matrix<const Value>& rows, const Matrix<const float>& targets,
                   const Matrix<float>& products, unsigned num_threads,
                   InstructionSet instructions = best_instruction_set());

/// Adds the gradient of the rows to grad_rows. Threads share the rows.
void attend_backward_rows(const NeighborLists& lists, TargetRange range, const SlotWeights& weights,
                          const Matrix<const float>& grad_out, const Matrix<float>& grad_rows, unsigned num_threads,
                          InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
