// Vectors as matrices, and values that are near what they are by definition.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "diskhop/nn/aggregate.hpp"

namespace diskhop::testing {

[[nodiscard]] inline Matrix<float> matrix(std::vector<float>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

[[nodiscard]] inline Matrix<const float> matrix(const std::vector<float>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

[[nodiscard]] inline bool is_near(float found, double wanted, double tolerance) {
  return std::abs(static_cast<double>(found) - wanted) <= tolerance * (1 + std::abs(wanted));
}

}  // namespace diskhop::testing
