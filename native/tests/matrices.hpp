// Vectors as matrices, and comparison of values with a tolerance.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "diskhop/simd/values.hpp"

namespace diskhop::testing {

[[nodiscard]] inline Matrix<float> matrix(std::vector<float>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

[[nodiscard]] inline Matrix<const float> matrix(const std::vector<float>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

[[nodiscard]] inline bool is_near(float found, double expected, double tolerance) {
  return std::abs(static_cast<double>(found) - expected) <= tolerance * (1 + std::abs(expected));
}

}  // namespace diskhop::testing
