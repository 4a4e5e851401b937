// Layer normalisation (Ba et al., 2016) of a mini-batch's rows, and its gradients.
#pragma once

#include <span>

#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Moments of one row: mean, and 1 / sqrt(variance + epsilon) as scale.
struct RowMoments {
  float mean;
  float scale;
};

/// Fills out with (x - mean) * scale * weight + bias, row by row, and stores the moments for the gradients. x and out:
/// (rows, columns), contiguous; weight and bias: (columns). The bits depend neither on threads nor on the instruction
/// set. Throws std::invalid_argument if sizes do not match. Value: float or Bfloat16.
template <typename Value>
void layer_norm(std::span<const Value> x, std::span<const float> weight, std::span<const float> bias, float epsilon,
                std::span<RowMoments> moments, std::span<Value> out, unsigned num_threads,
                InstructionSet instructions = best_instruction_set());

/// Fills grad_x with the gradient of x, given that of out, and adds the gradients of weight and bias to grad_weight and
/// grad_bias. Otherwise as layer_norm().
template <typename Value>
void layer_norm_backward(std::span<const Value> x, std::span<const RowMoments> moments, std::span<const float> weight,
                         std::span<const Value> grad_out, std::span<Value> grad_x, std::span<float> grad_weight,
                         std::span<float> grad_bias, unsigned num_threads,
                         InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
