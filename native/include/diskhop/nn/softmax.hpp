// Softmax of rows of logits.
#pragma once

#include <cstdint>
#include <span>

#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Outputs of softmax_rows(), one entry per row; empty: not wanted.
struct SoftmaxOutputs {
  std::span<std::int64_t> classes;  // column of the largest logit, the lowest of equal ones
  std::span<float> largest;         // probability of that class
  Matrix<float> probabilities{};    // of all columns
};

/// Computes the softmax of each row of finite logits. A probability is 0 where its logit is 87.3 below the largest. All
/// instruction sets give the same bits. Throws std::invalid_argument for outputs of another shape, or rows without
/// columns.
void softmax_rows(const Matrix<const float>& logits, const SoftmaxOutputs& outputs,
                  InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
