// Sums over neighbour lists: what a graph neural network's layer reads of its edges, and the gradient of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace diskhop {

/// Formats of 16 bits, told apart by type; arithmetic is in float.
struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

/// Rows of `num_columns` values, `stride` values apart.
template <typename Value>
struct Matrix {
  Value* data = nullptr;
  std::size_t num_rows = 0;
  std::size_t num_columns = 0;
  std::size_t stride = 0;
};

/// A weighted sum of rows for every target: target t gets the rows `sources[indptr[t] .. indptr[t + 1])`, each times
/// its edge's weight (none given: 1), and its own row times `self_weights[t]` (none given: 0). is_mean: the sum over
/// the edges is divided by their number.
struct NeighborSums {
  std::span<const std::int32_t> indptr;      // targets + 1
  std::span<const std::int32_t> sources;     // at least indptr.back()
  std::span<const float> edge_weights;       // as many as sources, or empty
  std::span<const float> self_weights;       // targets, or empty
  std::span<const std::int32_t> own_rows{};  // of each target, or empty: 0, 1, 2 ...
  bool is_mean = false;

  [[nodiscard]] std::size_t num_targets() const noexcept { return indptr.size() - 1; }
};

/// Instructions that the kernels are compiled for; all give the same bits.
enum class InstructionSet { portable, avx2, avx512 };
[[nodiscard]] std::vector<InstructionSet> supported_instruction_sets();
[[nodiscard]] InstructionSet best_instruction_set();

/// out = the sums of x's rows, (targets, columns of x); where out is twice as wide, target t's own row on the right of
/// the sum. Adds in float, in the order of the edges: no result depends on num_threads.
///
/// Throws std::invalid_argument for sizes that do not fit together, std::out_of_range for a source outside x.
/// x: float, Bfloat16 or Float16; out: float or Bfloat16, rounded to nearest even.
template <typename In, typename Out>
void aggregate(const NeighborSums& sums, const Matrix<const In>& x, const Matrix<Out>& out, unsigned num_threads,
               InstructionSet instructions = best_instruction_set());

/// grad_x = the gradient of x where grad_out is that of aggregate()'s out; rows that nothing read get 0. Every element
/// is added up in the order of the edges, in float, a mean's gradients times 1 / degree: no result depends on
/// num_threads. Takes 4 bytes a row of x and 8 an edge besides. Throws as above, and std::bad_alloc. Value: float or
/// Bfloat16. Own rows are the first.
template <typename Value>
void aggregate_backward(const NeighborSums& sums, const Matrix<const Value>& grad_out, const Matrix<Value>& grad_x,
                        unsigned num_threads, InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
