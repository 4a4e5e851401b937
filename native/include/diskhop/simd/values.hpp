// Values of kernels: 16-bit formats and matrices by rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace diskhop {

/// 16-bit formats, distinguished by type; arithmetic is in float.
struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

/// A view of rows of `num_columns` values, `stride` values apart.
template <typename Value>
struct Matrix {
  Value* data = nullptr;
  std::size_t num_rows = 0;
  std::size_t num_columns = 0;
  std::size_t stride = 0;
};

}  // namespace diskhop
