// Python bindings of softmax; see softmax.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/nn/softmax.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using InputMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using OutputMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

void softmax(const InputMatrix& logits, const std::optional<InOutArray<std::int64_t>>& classes,
             const std::optional<InOutArray<float>>& largest, const std::optional<OutputMatrix>& probabilities) {
  SoftmaxOutputs outputs;
  if (classes) outputs.classes = as_span(*classes);
  if (largest) outputs.largest = as_span(*largest);
  if (probabilities) outputs.probabilities = as_matrix<float>(*probabilities, "softmax");
  const auto from = as_matrix<const float>(logits, "softmax");
  const nb::gil_scoped_release unlocked;
  softmax_rows(from, outputs);
}

}  // namespace

void bind_softmax(nb::module_& module) {
  using namespace nb::literals;
  module.def("softmax_rows", &softmax, "logits"_a.noconvert(), "classes"_a.noconvert().none(),
             "largest"_a.noconvert().none(), "probabilities"_a.noconvert().none(),
             "Compute the class of each row, its probability, and the probabilities of all classes.");
}

}  // namespace diskhop
