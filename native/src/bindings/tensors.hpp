// Tensors of torch, passed by DLPack: the core does not depend on torch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Rows of any dtype and stride (NumPy has no bfloat16).
using AnyMatrix = nanobind::ndarray<nanobind::ndim<2>, nanobind::device::cpu>;
using AnyConstMatrix = nanobind::ndarray<nanobind::ro, nanobind::ndim<2>, nanobind::device::cpu>;

/// Calls visit with a null pointer of the C++ type for a dtype.
template <typename Visit>
void visit_dtype(nanobind::dlpack::dtype dtype, Visit visit) {
  using Code = nanobind::dlpack::dtype_code;
  if (dtype == nanobind::dtype<float>()) return visit(static_cast<float*>(nullptr));
  const nanobind::dlpack::dtype bfloat16{static_cast<std::uint8_t>(Code::Bfloat), 16, 1};
  if (dtype == bfloat16) return visit(static_cast<Bfloat16*>(nullptr));
  const nanobind::dlpack::dtype float16{static_cast<std::uint8_t>(Code::Float), 16, 1};
  if (dtype == float16) return visit(static_cast<Float16*>(nullptr));
  throw std::invalid_argument("values must be float32, bfloat16 or (x only) float16");
}

/// Returns the values of a matrix with contiguous rows. Throws std::invalid_argument for others.
template <typename Value, typename Array>
[[nodiscard]] std::span<Value> as_values(const Array& array) {
  const bool is_whole = (array.shape(1) <= 1 || array.stride(1) == 1) &&
                        (array.shape(0) <= 1 || array.stride(0) == static_cast<std::int64_t>(array.shape(1)));
  if (!is_whole) throw std::invalid_argument("rows must be contiguous");
  return {static_cast<Value*>(array.data()), array.size()};
}

/// Whether an array has a dtype; true if none is given.
template <typename Array>
[[nodiscard]] bool is_of(nanobind::dlpack::dtype dtype, const Array& array) {
  return array.dtype() == dtype;
}
template <typename Array>
[[nodiscard]] bool is_of(nanobind::dlpack::dtype dtype, const std::optional<Array>& array) {
  return !array || array->dtype() == dtype;
}

/// Calls visit with a null pointer of the values' C++ type, float or Bfloat16, which all arrays must have.
template <typename Visit, typename First, typename... Others>
void visit_values(const char* what, Visit visit, const First& first, const Others&... others) {
  if ((!is_of(first.dtype(), others) || ...)) {
    throw std::invalid_argument(std::string(what) + ": values and gradients must have one dtype");
  }
  visit_dtype(first.dtype(), [&]<typename Value>(Value* type) {
    if constexpr (std::is_same_v<Value, Float16>) {
      throw std::invalid_argument(std::string(what) + ": values must be float32 or bfloat16");
    } else {
      visit(type);
    }
  });
}

}  // namespace diskhop
