// Tensors of torch, which the core does not know: they come by DLPack.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>

#include "diskhop/aggregate.hpp"

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
  throw std::invalid_argument("values must be float32, bfloat16 or, of x alone, float16");
}

}  // namespace diskhop
