#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <span>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/nn/activation.hpp"
#include "diskhop/nn/layer_norm.hpp"
#include "tensors.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

void rectify_array(const AnyMatrix& values, float probability, std::uint64_t seed, unsigned num_threads) {
  visit_values(
      "rectify",
      [&]<typename Value>(Value*) {
        const auto found = as_values<Value>(values);
        const nb::gil_scoped_release unlocked;
        rectify(found, {.probability = probability, .seed = seed}, num_threads);
      },
      values);
}

void rectify_array_backward(const AnyConstMatrix& values, const AnyConstMatrix& grad, float probability,
                            const AnyMatrix& grad_values, unsigned num_threads) {
  visit_values(
      "rectify",
      [&]<typename Value>(Value*) {
        const auto left = as_values<const Value>(values);
        const auto given = as_values<const Value>(grad);
        const auto found = as_values<Value>(grad_values);
        const nb::gil_scoped_release unlocked;
        rectify_backward(left, given, {.probability = probability, .seed = 0}, found, num_threads);
      },
      grad_values, values, grad);
}

using Moments = nb::ndarray<float, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

std::span<RowMoments> as_moments(const Moments& array) {
  static_assert(sizeof(RowMoments) == 2 * sizeof(float));
  return {reinterpret_cast<RowMoments*>(array.data()), array.shape(0)};
}

void layer_norm_array(const AnyConstMatrix& x, const InputArray<float>& weight, const InputArray<float>& bias,
                      float epsilon, const Moments& moments, const AnyMatrix& out, unsigned num_threads) {
  visit_values(
      "layer_norm",
      [&]<typename Value>(Value*) {
        const auto from = as_values<const Value>(x);
        const auto to = as_values<Value>(out);
        const nb::gil_scoped_release unlocked;
        layer_norm(from, as_span(weight), as_span(bias), epsilon, as_moments(moments), to, num_threads);
      },
      out, x);
}

void layer_norm_array_backward(const AnyConstMatrix& x, const Moments& moments, const InputArray<float>& weight,
                               const AnyConstMatrix& grad_out, const AnyMatrix& grad_x,
                               const InOutArray<float>& grad_weight, const InOutArray<float>& grad_bias,
                               unsigned num_threads) {
  visit_values(
      "layer_norm",
      [&]<typename Value>(Value*) {
        const auto from = as_values<const Value>(x);
        const auto given = as_values<const Value>(grad_out);
        const auto to = as_values<Value>(grad_x);
        const std::span<const RowMoments> of_rows = as_moments(moments);
        const nb::gil_scoped_release unlocked;
        layer_norm_backward(from, of_rows, as_span(weight), given, to, as_span(grad_weight), as_span(grad_bias),
                            num_threads);
      },
      grad_x, x, grad_out);
}

}  // namespace

void bind_activation(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written in place.
  module.def("rectify", &rectify_array, "values"_a.noconvert(), "probability"_a, "seed"_a, "num_threads"_a,
             "Apply ReLU and dropout in place; see activation.hpp.");
  module.def("rectify_backward", &rectify_array_backward, "values"_a.noconvert(), "grad"_a.noconvert(), "probability"_a,
             "grad_values"_a.noconvert(), "num_threads"_a, "Fill the gradient of rectify()'s input, from its output.");
  module.def("layer_norm", &layer_norm_array, "x"_a.noconvert(), "weight"_a.noconvert(), "bias"_a.noconvert(),
             "epsilon"_a, "moments"_a.noconvert(), "out"_a.noconvert(), "num_threads"_a,
             "Normalise rows; see layer_norm.hpp.");
  module.def("layer_norm_backward", &layer_norm_array_backward, "x"_a.noconvert(), "moments"_a.noconvert(),
             "weight"_a.noconvert(), "grad_out"_a.noconvert(), "grad_x"_a.noconvert(), "grad_weight"_a.noconvert(),
             "grad_bias"_a.noconvert(), "num_threads"_a, "Fill the gradients of layer_norm()'s inputs.");
}

}  // namespace diskhop
