#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/nn/aggregate.hpp"
#include "tensors.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using Weights = std::optional<InputArray<float>>;
using OwnRows = std::optional<InputArray<std::int32_t>>;

NeighborSums as_sums(const InputArray<std::int32_t>& indptr, const InputArray<std::int32_t>& sources,
                     const Weights& edge_weights, const Weights& self_weights, bool is_mean, const OwnRows& own_rows) {
  return {.indptr = as_span(indptr),
          .sources = as_span(sources),
          .edge_weights = edge_weights ? as_span(*edge_weights) : std::span<const float>{},
          .self_weights = self_weights ? as_span(*self_weights) : std::span<const float>{},
          .own_rows = own_rows ? as_span(*own_rows) : std::span<const std::int32_t>{},
          .is_mean = is_mean};
}

void aggregate_arrays(const InputArray<std::int32_t>& indptr, const InputArray<std::int32_t>& sources,
                      const Weights& edge_weights, const Weights& self_weights, bool is_mean, const OwnRows& own_rows,
                      const AnyConstMatrix& x, const AnyMatrix& out, unsigned num_threads) {
  const NeighborSums sums = as_sums(indptr, sources, edge_weights, self_weights, is_mean, own_rows);
  visit_dtype(x.dtype(), [&]<typename In>(In*) {
    visit_dtype(out.dtype(), [&]<typename Out>(Out*) {
      if constexpr (std::is_same_v<Out, Float16>) {
        throw std::invalid_argument("aggregate: out must be float32 or bfloat16");
      } else {
        const auto from = as_matrix<const In>(x, "aggregate");
        const auto to = as_matrix<Out>(out, "aggregate");
        const nb::gil_scoped_release unlocked;
        aggregate(sums, from, to, num_threads);
      }
    });
  });
}

void aggregate_arrays_backward(const InputArray<std::int32_t>& indptr, const InputArray<std::int32_t>& sources,
                               const Weights& edge_weights, const Weights& self_weights, bool is_mean,
                               const AnyConstMatrix& grad_out, const AnyMatrix& grad_x, unsigned num_threads,
                               BufferPool* scratch, bool adds) {
  if (grad_out.dtype() != grad_x.dtype()) throw std::invalid_argument("aggregate: gradients must have one dtype");
  const NeighborSums sums = as_sums(indptr, sources, edge_weights, self_weights, is_mean, {});
  visit_dtype(grad_x.dtype(), [&]<typename Value>(Value*) {
    if constexpr (std::is_same_v<Value, Float16>) {
      throw std::invalid_argument("aggregate: gradients must be float32 or bfloat16");
    } else {
      const auto from = as_matrix<const Value>(grad_out, "aggregate");
      const auto to = as_matrix<Value>(grad_x, "aggregate");
      const nb::gil_scoped_release unlocked;
      BufferPool unshared(0);
      aggregate_backward(sums, from, to, scratch != nullptr ? *scratch : unshared, num_threads, adds);
    }
  });
}

}  // namespace

void bind_aggregate(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written in place.
  module.def("aggregate", &aggregate_arrays, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "edge_weights"_a.noconvert().none(), "self_weights"_a.noconvert().none(), "is_mean"_a,
             "own_rows"_a.noconvert().none(), "x"_a.noconvert(), "out"_a.noconvert(), "num_threads"_a,
             "Sum rows over neighbour lists; see aggregate.hpp.");
  module.def("aggregate_backward", &aggregate_arrays_backward, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "edge_weights"_a.noconvert().none(), "self_weights"_a.noconvert().none(), "is_mean"_a,
             "grad_out"_a.noconvert(), "grad_x"_a.noconvert(), "num_threads"_a, "scratch"_a = nb::none(),
             "adds"_a = false, "Fill the gradient of aggregate()'s x; see aggregate.hpp.");
}

}  // namespace diskhop
