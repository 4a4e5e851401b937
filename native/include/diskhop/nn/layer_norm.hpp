// Layer normalisation (Ba et al., 2016) of a mini-batch's rows, and its gradients.
#pragma once

#include <span>

#include "diskhop/nn/aggregate.hpp"

namespace diskhop {

/// Of a row that was normalised: its mean, and 1 / sqrt(variance + epsilon).
struct RowMoments {
  float mean;
  float scale;
};

/// out = (x - mean) * scale * weight + bias, row by row; the moments are left for the gradients. x and out: (rows,
/// columns), rows together; weight and bias: (columns). The same bits by any number of threads and instruction set.
/// Throws std::invalid_argument where sizes do not fit each other. Value: float or Bfloat16.
template <typename Value>
void layer_norm(std::span<const Value> x, std::span<const float> weight, std::span<const float> bias, float epsilon,
                std::span<RowMoments> moments, std::span<Value> out, unsigned num_threads,
                InstructionSet instructions = best_instruction_set());

/// Fills grad_x with the gradient of x, given that of out, and adds those of weight and bias to grad_weight and
/// grad_bias. Otherwise as above.
template <typename Value>
void layer_norm_backward(std::span<const Value> x, std::span<const RowMoments> moments, std::span<const float> weight,
                         std::span<const Value> grad_out, std::span<Value> grad_x, std::span<float> grad_weight,
                         std::span<float> grad_bias, unsigned num_threads,
                         InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
