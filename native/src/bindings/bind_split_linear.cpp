// Python bindings of linear layers over rows in several matrices; see split_linear.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/nn/split_linear.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using InputMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using OutputMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using MaybeVector = std::optional<InputArray<float>>;
using Inputs = std::vector<std::pair<std::vector<InputMatrix>, MaybeVector>>;

std::span<const float> as_span_if_given(const MaybeVector& vector) {
  return vector ? as_span(*vector) : std::span<const float>();
}

template <typename Value, typename Array>
std::vector<Matrix<Value>> as_matrices(const std::vector<Array>& arrays) {
  std::vector<Matrix<Value>> matrices;
  matrices.reserve(arrays.size());
  for (const Array& array : arrays) matrices.push_back(as_matrix<Value>(array, "split linear"));
  return matrices;
}

bool apply(const SplitLinear& linear, const Inputs& inputs, bool rectifies, const std::vector<OutputMatrix>& out,
           unsigned num_threads) {
  std::vector<std::vector<Matrix<const float>>> parts;
  std::vector<SplitRows> rows;
  for (const auto& [arrays, divisors] : inputs) {
    parts.push_back(as_matrices<const float>(arrays));
    rows.push_back({.parts = parts.back(), .divisors = as_span_if_given(divisors)});  // vectors move, their values stay
  }
  const std::vector<Matrix<float>> to = as_matrices<float>(out);
  const nb::gil_scoped_release unlocked;
  return linear.apply(rows, rectifies, to, num_threads);
}

}  // namespace

void bind_split_linear(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<SplitLinear>(module, "SplitLinear", "Linear layer of rows in several matrices; see split_linear.hpp.")
      .def(
          "__init__",
          [](SplitLinear* self, const InputMatrix& weight, const MaybeVector& bias) {
            new (self) SplitLinear(as_matrix<const float>(weight, "split linear"), as_span_if_given(bias));
          },
          "weight"_a.noconvert(), "bias"_a.noconvert().none())
      .def("apply", &apply, "inputs"_a.noconvert(), "rectifies"_a, "out"_a.noconvert(), "num_threads"_a,
           "Fill the rows of out; return whether all are finite. inputs: parts, and a divisor per row or None.");
}

}  // namespace diskhop
