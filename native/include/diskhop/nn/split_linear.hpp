// Linear layers of rows whose columns lie in several matrices, next to one another, into rows that do so too.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Rows whose columns lie in several parts, one part after the other, divided by a number per row (empty: undivided).
/// What is divided is the sum of their products. A row with the divisor 0 counts as zeros; its values are not read, and
/// the parts may have only the other rows.
struct SplitRows {
  std::span<const Matrix<const float>> parts;
  std::span<const float> divisors;
};

/// A linear layer whose weight is stored in the order of reading. Rows are multiplied where they lie, a few at a time.
/// Threading: apply() by any number of callers.
class SplitLinear {
 public:
  /// weight: (out_dim, in_dim). bias: (out_dim), or empty. Throws std::invalid_argument if they do not match.
  SplitLinear(const Matrix<const float>& weight, std::span<const float> bias,
              InstructionSet instructions = best_instruction_set());

  /// Fills out with x weight^T + bias, and max(0, that) if it rectifies; NaN stays NaN. x: the columns of all inputs,
  /// next to one another; only the first may be divided. Returns whether all results are finite. A call takes memory
  /// for some rows per thread. Terms are added in order, so that bits depend on a row, its inputs and the instruction
  /// set alone. Throws std::invalid_argument for sizes that do not match, before anything is written.
  bool apply(std::span<const SplitRows> inputs, bool rectifies, std::span<const Matrix<float>> out,
             unsigned num_threads) const;

 private:
  struct Line {
    alignas(64) std::array<float, 16> values{};
  };

  std::size_t in_dim_;
  std::size_t out_dim_;
  InstructionSet instructions_;
  std::size_t panel_columns_ = 0;
  std::size_t padded_out_dim_ = 0;  // whole panels
  std::vector<Line> weight_;        // panels of columns, each (in_dim, panel_columns)
  std::vector<Line> bias_;          // (padded_out_dim)
};

}  // namespace diskhop
