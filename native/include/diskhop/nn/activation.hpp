// ReLU and dropout in one pass, with draws that depend on nothing but their key.
#pragma once

#include <cstdint>
#include <span>

#include "diskhop/nn/aggregate.hpp"

namespace diskhop {

/// Which values dropout takes: value i of those in `values` where draw32(absorb(seed, i / 4096), i % 4096) is below
/// probability * 2^32. The others are divided by 1 - probability.
struct Dropout {
  float probability = 0;  // at least 0, less than 1
  std::uint64_t seed = 0;
};

/// values = dropout(max(values, 0)), in place; what is not a number stays. Throws std::invalid_argument for a
/// probability out of its range. Value: float or Bfloat16.
template <typename Value>
void rectify(std::span<Value> values, const Dropout& dropout, unsigned num_threads,
             InstructionSet instructions = best_instruction_set());

/// grad_values = the gradient of the values that rectify() was given: where it left 0, 0. No draw is repeated for it.
/// Throws std::invalid_argument for spans of different lengths.
template <typename Value>
void rectify_backward(std::span<const Value> values, std::span<const Value> grad, const Dropout& dropout,
                      std::span<Value> grad_values, unsigned num_threads,
                      InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
