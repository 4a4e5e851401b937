#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/activation.hpp"
#include "diskhop/aggregate.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

// Rows of any dtype and stride, as torch's tensors come by DLPack (NumPy has no bfloat16).
using AnyMatrix = nb::ndarray<nb::ndim<2>, nb::device::cpu>;
using AnyConstMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using Weights = std::optional<InputArray<float>>;

template <typename Value, typename Array>
Matrix<Value> as_matrix(const Array& array) {
  if (array.shape(1) > 1 && array.stride(1) != 1) throw std::invalid_argument("aggregate: columns must lie together");
  return {static_cast<Value*>(array.data()), array.shape(0), array.shape(1), static_cast<std::size_t>(array.stride(0))};
}

// Calls visit with a null pointer of the C++ type for a dtype.
template <typename Visit>
void visit_dtype(nb::dlpack::dtype dtype, Visit visit) {
  if (dtype == nb::dtype<float>()) return visit(static_cast<float*>(nullptr));
  const nb::dlpack::dtype bfloat16{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
  if (dtype == bfloat16) return visit(static_cast<Bfloat16*>(nullptr));
  const nb::dlpack::dtype float16{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  if (dtype == float16) return visit(static_cast<Float16*>(nullptr));
  throw std::invalid_argument("values must be float32, bfloat16 or, of x alone, float16");
}

NeighborSums as_sums(const InputArray<std::int32_t>& indptr, const InputArray<std::int32_t>& sources,
                     const Weights& edge_weights, const Weights& self_weights, bool is_mean) {
  return {.indptr = as_span(indptr),
          .sources = as_span(sources),
          .edge_weights = edge_weights ? as_span(*edge_weights) : std::span<const float>{},
          .self_weights = self_weights ? as_span(*self_weights) : std::span<const float>{},
          .is_mean = is_mean};
}

void aggregate_arrays(const InputArray<std::int32_t>& indptr, const InputArray<std::int32_t>& sources,
                      const Weights& edge_weights, const Weights& self_weights, bool is_mean, const AnyConstMatrix& x,
                      const AnyMatrix& out, unsigned num_threads) {
  const NeighborSums sums = as_sums(indptr, sources, edge_weights, self_weights, is_mean);
  visit_dtype(x.dtype(), [&]<typename In>(In*) {
    visit_dtype(out.dtype(), [&]<typename Out>(Out*) {
      if constexpr (std::is_same_v<Out, Float16>) {
        throw std::invalid_argument("aggregate: out must be float32 or bfloat16");
      } else {
        const auto from = as_matrix<const In>(x);
        const auto to = as_matrix<Out>(out);
        const nb::gil_scoped_release unlocked;
        aggregate(sums, from, to, num_threads);
      }
    });
  });
}

void aggregate_arrays_backward(const InputArray<std::int32_t>& indptr, const InputArray<std::int32_t>& sources,
                               const Weights& edge_weights, const Weights& self_weights, bool is_mean,
                               const AnyConstMatrix& grad_out, const AnyMatrix& grad_x, unsigned num_threads) {
  if (grad_out.dtype() != grad_x.dtype()) throw std::invalid_argument("aggregate: gradients must be of one dtype");
  const NeighborSums sums = as_sums(indptr, sources, edge_weights, self_weights, is_mean);
  visit_dtype(grad_x.dtype(), [&]<typename Value>(Value*) {
    if constexpr (std::is_same_v<Value, Float16>) {
      throw std::invalid_argument("aggregate: gradients must be float32 or bfloat16");
    } else {
      const auto from = as_matrix<const Value>(grad_out);
      const auto to = as_matrix<Value>(grad_x);
      const nb::gil_scoped_release unlocked;
      aggregate_backward(sums, from, to, num_threads);
    }
  });
}

template <typename Value>
std::span<Value> as_values(const AnyMatrix& array) {
  const bool is_whole = (array.shape(1) <= 1 || array.stride(1) == 1) &&
                        (array.shape(0) <= 1 || array.stride(0) == static_cast<std::int64_t>(array.shape(1)));
  if (!is_whole) throw std::invalid_argument("rectify: rows must lie together");
  return {static_cast<Value*>(array.data()), array.size()};
}

void rectify_array(const AnyMatrix& values, float probability, std::uint64_t seed, unsigned num_threads) {
  visit_dtype(values.dtype(), [&]<typename Value>(Value*) {
    if constexpr (std::is_same_v<Value, Float16>) {
      throw std::invalid_argument("rectify: values must be float32 or bfloat16");
    } else {
      const std::span<Value> found = as_values<Value>(values);
      const nb::gil_scoped_release unlocked;
      rectify(found, {.probability = probability, .seed = seed}, num_threads);
    }
  });
}

void rectify_array_backward(const AnyMatrix& values, const AnyMatrix& grad, float probability,
                            const AnyMatrix& grad_values, unsigned num_threads) {
  if (values.dtype() != grad.dtype() || grad.dtype() != grad_values.dtype()) {
    throw std::invalid_argument("rectify: values and gradients must be of one dtype");
  }
  visit_dtype(values.dtype(), [&]<typename Value>(Value*) {
    if constexpr (std::is_same_v<Value, Float16>) {
      throw std::invalid_argument("rectify: values must be float32 or bfloat16");
    } else {
      const std::span<const Value> left = as_values<Value>(values);
      const std::span<const Value> given = as_values<Value>(grad);
      const std::span<Value> found = as_values<Value>(grad_values);
      const nb::gil_scoped_release unlocked;
      rectify_backward(left, given, {.probability = probability, .seed = 0}, found, num_threads);
    }
  });
}

}  // namespace

void bind_aggregate(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written where they lie.
  module.def("aggregate", &aggregate_arrays, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "edge_weights"_a.noconvert().none(), "self_weights"_a.noconvert().none(), "is_mean"_a, "x"_a.noconvert(),
             "out"_a.noconvert(), "num_threads"_a, "Sum rows over neighbour lists; see aggregate.hpp.");
  module.def("aggregate_backward", &aggregate_arrays_backward, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "edge_weights"_a.noconvert().none(), "self_weights"_a.noconvert().none(), "is_mean"_a,
             "grad_out"_a.noconvert(), "grad_x"_a.noconvert(), "num_threads"_a,
             "The gradient of aggregate()'s x; see aggregate.hpp.");
  module.def("rectify", &rectify_array, "values"_a.noconvert(), "probability"_a, "seed"_a, "num_threads"_a,
             "ReLU and dropout in place; see activation.hpp.");
  module.def("rectify_backward", &rectify_array_backward, "values"_a.noconvert(), "grad"_a.noconvert(), "probability"_a,
             "grad_values"_a.noconvert(), "num_threads"_a,
             "The gradient of what rectify() was given, from what it left.");
}

}  // namespace diskhop
