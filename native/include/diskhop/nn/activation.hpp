// ReLU and dropout in one pass, with draws that depend only on their key.
#pragma once

#include <cstdint>
#include <span>

#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Dropout of value i of `values` if draw32(absorb(seed, i / 4096), i % 4096) is below probability * 2^32. Kept values
/// are divided by 1 - probability.
struct Dropout {
  float probability = 0;  // at least 0, less than 1
  std::uint64_t seed = 0;
};

/// Replaces values by dropout(max(values, 0)); NaN stays NaN. Throws std::invalid_argument for a probability out of
/// range. Value: float or Bfloat16.
template <typename Value>
void rectify(std::span<Value> values, const Dropout& dropout, unsigned num_threads,
             InstructionSet instructions = best_instruction_set());

/// Fills grad_values with the gradient of rectify()'s input: 0 where its output is 0, so no draw is repeated. Throws
/// std::invalid_argument for spans of different lengths.
template <typename Value>
void rectify_backward(std::span<const Value> values, std::span<const Value> grad, const Dropout& dropout,
                      std::span<Value> grad_values, unsigned num_threads,
                      InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
