#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/nn/linear.hpp"
#include "tensors.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using MaybeMatrix = std::optional<AnyConstMatrix>;
using MaybePlaces = std::optional<InputArray<std::int64_t>>;

const MatrixProducts& mkl() {
  static const std::optional<MatrixProducts> found = find_mkl();
  if (!found) throw std::runtime_error("this build of torch has no MKL");
  return *found;
}

Places as_places(const MaybePlaces& places) { return places ? Places(as_span(*places)) : std::nullopt; }

template <typename Value>
std::span<const Value> as_values_if_given(const MaybeMatrix& matrix) {
  return matrix ? as_values<const Value>(*matrix) : std::span<const Value>();
}

/// Calls visit with null pointers of the C++ types of values and of x, which may have 16 bits where values are float.
template <typename Visit, typename First, typename... Others>
void visit_rows(const AnyConstMatrix& x, Visit visit, const First& first, const Others&... others) {
  visit_values(
      "linear",
      [&]<typename Value>(Value* value) {
        if constexpr (std::is_same_v<Value, float>) {
          visit_dtype(x.dtype(), [&](auto* row) { visit(value, row); });
        } else {
          visit_values("linear", [&](auto*) { visit(value, value); }, first, x);
        }
      },
      first, others...);
}

void linear_rows(const AnyConstMatrix& x, const AnyConstMatrix& weight, const MaybeMatrix& bias,
                 std::optional<float> dropout, std::uint64_t seed, const AnyMatrix& out, unsigned num_threads,
                 BufferPool* scratch, const MaybePlaces& places) {
  visit_rows(
      x,
      [&]<typename Value, typename Row>(Value*, Row*) {
        const auto rows = as_values<const Row>(x);
        const auto weights = as_values<const Value>(weight);
        const auto biases = as_values_if_given<Value>(bias);
        const auto results = as_values<Value>(out);
        std::optional<Dropout> rectified;
        if (dropout) rectified = {.probability = *dropout, .seed = seed};
        const std::size_t in_dim = x.shape(1);
        const nb::gil_scoped_release unlocked;
        BufferPool unshared(0);
        linear<Value, Row>(mkl(), rows, weights, biases, in_dim, rectified, results,
                           scratch != nullptr ? *scratch : unshared, num_threads, as_places(places));
      },
      out, weight, bias);
}

void linear_rows_backward(const AnyConstMatrix& grad, const AnyConstMatrix& x, const MaybeMatrix& weight,
                          const MaybeMatrix& left, std::optional<float> dropout, const std::optional<AnyMatrix>& grad_x,
                          const AnyMatrix& grad_weight, const InOutArray<float>& grad_bias, unsigned num_threads,
                          BufferPool* scratch, const MaybePlaces& places) {
  if (!is_of(nb::dtype<float>(), grad_weight)) throw std::invalid_argument("linear: grad_weight must be float32");
  visit_rows(
      x,
      [&]<typename Value, typename Row>(Value*, Row*) {
        const auto grads = as_values<const Value>(grad);
        const auto rows = as_values<const Row>(x);
        const auto weights = as_values_if_given<Value>(weight);
        const auto rectified = as_values_if_given<Value>(left);
        const auto of_x = grad_x ? as_values<Value>(*grad_x) : std::span<Value>();
        const auto of_weight = as_values<float>(grad_weight);
        std::optional<Dropout> dropped;
        if (dropout) dropped = {.probability = *dropout, .seed = 0};
        const std::size_t in_dim = x.shape(1);
        const nb::gil_scoped_release unlocked;
        BufferPool unshared(0);
        linear_backward<Value, Row>(mkl(), grads, rows, weights, in_dim, rectified, dropped, of_x, of_weight,
                                    as_span(grad_bias), scratch != nullptr ? *scratch : unshared, num_threads,
                                    as_places(places));
      },
      grad, weight, left, grad_x);
}

}  // namespace

void bind_linear(nb::module_& module) {
  using namespace nb::literals;
  module.def("linear", &linear_rows, "x"_a.noconvert(), "weight"_a.noconvert(), "bias"_a.noconvert().none(),
             "dropout"_a.none(), "seed"_a, "out"_a.noconvert(), "num_threads"_a, "scratch"_a = nb::none(),
             "places"_a = nb::none(), "Compute a linear layer; see linear.hpp.");
  module.def("linear_backward", &linear_rows_backward, "grad"_a.noconvert(), "x"_a.noconvert(),
             "weight"_a.noconvert().none(), "left"_a.noconvert().none(), "dropout"_a.none(),
             "grad_x"_a.noconvert().none(), "grad_weight"_a.noconvert(), "grad_bias"_a.noconvert(), "num_threads"_a,
             "scratch"_a = nb::none(), "places"_a = nb::none(), "Fill the gradients of linear()'s inputs.");
}

}  // namespace diskhop
