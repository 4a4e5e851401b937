// Sums over neighbour lists, the message passing of a graph neural network's layer, and their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diskhop/io/buffer.hpp"
#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// A weighted sum of rows per target. Target t sums the rows sources[indptr[t] .. indptr[t + 1]), each times its edge's
/// weight (default 1), plus its own row times self_weights[t] (default 0). is_mean: the sum over the edges is divided
/// by their number.
struct NeighborSums {
  std::span<const std::int32_t> indptr;      // (targets + 1)
  std::span<const std::int32_t> sources;     // at least indptr.back()
  std::span<const float> edge_weights;       // one per source, or empty
  std::span<const float> self_weights;       // (targets), or empty
  std::span<const std::int32_t> own_rows{};  // own row of each target, or empty: 0, 1, 2 ...
  bool is_mean = false;

  [[nodiscard]] std::size_t num_targets() const noexcept { return indptr.size() - 1; }
};

/// Fills out (targets, columns of x) with the sums of x's rows. If out is twice as wide, each target's own row follows
/// its sum. Own rows are read only for that and for self weights: otherwise targets need not be rows of x. Adds in
/// float, in the order of the edges: no result depends on num_threads.
///
/// Throws std::invalid_argument for sizes that do not match, std::out_of_range for a source outside x. x: float,
/// Bfloat16 or Float16; out: float or Bfloat16, rounded to nearest even.
template <typename In, typename Out>
void aggregate(const NeighborSums& sums, const Matrix<const In>& x, const Matrix<Out>& out, unsigned num_threads,
               InstructionSet instructions = best_instruction_set());

/// Fills grad_x with the gradient of x, given that of aggregate()'s out; rows that no target reads get 0. Adds in
/// float, in the order of the edges, a mean's gradients times 1 / degree: no result depends on num_threads. adds: adds
/// to what grad_x has instead. scratch: 4 bytes per row of x and 8 per edge are taken from it for the length of the
/// call. Own rows must be the default. Throws as aggregate() does, and std::bad_alloc. Value: float or Bfloat16.
template <typename Value>
void aggregate_backward(const NeighborSums& sums, const Matrix<const Value>& grad_out, const Matrix<Value>& grad_x,
                        BufferPool& scratch, unsigned num_threads, bool adds = false,
                        InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
