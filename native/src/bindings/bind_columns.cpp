// Python bindings of matrices that share columns; see columns.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/hops/columns.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using InputMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using OutputMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

template <typename Value, typename Array>
std::vector<Matrix<Value>> as_matrices(const std::vector<Array>& arrays) {
  std::vector<Matrix<Value>> matrices;
  matrices.reserve(arrays.size());
  for (const Array& array : arrays) matrices.push_back(as_matrix<Value>(array, "columns"));
  return matrices;
}

void join(const std::vector<InputMatrix>& parts, const OutputMatrix& out, unsigned num_threads,
          const std::optional<InputArray<float>>& divisors) {
  const std::vector<Matrix<const float>> from = as_matrices<const float>(parts);
  const auto to = as_matrix<float>(out, "columns");
  const nb::gil_scoped_release unlocked;
  join_columns(from, divisors ? as_span(*divisors) : std::span<const float>{}, to, num_threads);
}

void split(const InputMatrix& rows, const std::vector<OutputMatrix>& parts, unsigned num_threads) {
  const auto from = as_matrix<const float>(rows, "columns");
  const std::vector<Matrix<float>> to = as_matrices<float>(parts);
  const nb::gil_scoped_release unlocked;
  split_columns(from, to, num_threads);
}

}  // namespace

void bind_columns(nb::module_& module) {
  using namespace nb::literals;
  module.def("join_columns", &join, "parts"_a.noconvert(), "out"_a.noconvert(), "num_threads"_a = 1,
             "divisors"_a.noconvert().none() = nb::none(),
             "Copy the columns of the parts, next to one another, to out; divided by a number per row if given.");
  module.def("split_columns", &split, "rows"_a.noconvert(), "parts"_a.noconvert(), "num_threads"_a = 1,
             "Copy the columns of rows to those of the parts.");
}

}  // namespace diskhop
