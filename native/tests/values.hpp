// Values of each format: generating and reading them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "diskhop/simd/values.hpp"

namespace diskhop::testing {

template <typename Value>
[[nodiscard]] Value made(float value) {
  if constexpr (std::is_same_v<Value, float>) {
    return value;
  } else {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return std::bit_cast<Value>(static_cast<std::uint16_t>(bits >> 16));
  }
}

template <typename Value>
[[nodiscard]] double read(Value value) {
  if constexpr (std::is_same_v<Value, float>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(
        std::bit_cast<float>(static_cast<std::uint32_t>(std::bit_cast<std::uint16_t>(value)) << 16));
  }
}

/// Draws normally distributed values.
template <typename Value>
[[nodiscard]] std::vector<Value> some_values(std::size_t num_values, unsigned seed, float center) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(center);
  std::vector<Value> values(num_values);
  for (Value& value : values) value = made<Value>(normal(random));
  return values;
}

template <typename Value>
[[nodiscard]] bool same_bits(const std::vector<Value>& one, const std::vector<Value>& another) {
  return one.size() == another.size() &&
         (one.empty() || std::memcmp(one.data(), another.data(), one.size() * sizeof(Value)) == 0);
}

}  // namespace diskhop::testing
