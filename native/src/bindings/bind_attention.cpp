#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/nn/attention.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using InputMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using OutputMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
// Rows of any dtype, as tensors of torch pass them by DLPack (NumPy has no bfloat16).
using InputRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using Indices = InputArray<std::int32_t>;

Matrix<const float> read(const InputMatrix& array) { return as_matrix<const float>(array, "attention"); }
Matrix<float> write(const OutputMatrix& array) { return as_matrix<float>(array, "attention"); }

/// Calls visit with the rows as a matrix of their dtype.
template <typename Visit>
void visit_rows(const InputRows& rows, Visit visit) {
  if (rows.dtype() == nb::dtype<float>()) return visit(as_matrix<const float>(rows, "attention"));
  const nb::dlpack::dtype bfloat16{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
  if (rows.dtype() == bfloat16) return visit(as_matrix<const Bfloat16>(rows, "attention"));
  throw std::invalid_argument("attention: rows must be float32 or bfloat16");
}

void attention_arrays(const Indices& indptr, const Indices& sources, const InputMatrix& source_scores,
                      const InputMatrix& target_scores, float negative_slope, double dropout, std::uint64_t seed,
                      const OutputMatrix& out, unsigned num_threads) {
  const AttentionScores scores{read(source_scores), read(target_scores), negative_slope};
  const Matrix<float> to = write(out);
  const NeighborLists lists{as_span(indptr), as_span(sources)};
  const nb::gil_scoped_release unlocked;
  attention(lists, scores, {dropout, seed}, to, num_threads);
}

void attention_arrays_backward(const Indices& indptr, const Indices& sources, const InputMatrix& source_scores,
                               const InputMatrix& target_scores, float negative_slope, const InputMatrix& attention,
                               const InputMatrix& grad_attention, const OutputMatrix& grad_source_scores,
                               const OutputMatrix& grad_target_scores, unsigned num_threads) {
  const AttentionScores scores{read(source_scores), read(target_scores), negative_slope};
  const Matrix<const float> weights = read(attention), grad = read(grad_attention);
  const Matrix<float> of_sources = write(grad_source_scores), of_targets = write(grad_target_scores);
  const NeighborLists lists{as_span(indptr), as_span(sources)};
  const nb::gil_scoped_release unlocked;
  attention_backward(lists, scores, weights, grad, of_sources, of_targets, num_threads);
}

void slot_softmax_arrays(const Indices& indptr, const InputMatrix& scores, double dropout, std::uint64_t seed,
                         const OutputMatrix& out, unsigned num_threads) {
  const Matrix<const float> from = read(scores);
  const Matrix<float> to = write(out);
  const NeighborLists lists{as_span(indptr), {}, false};
  const nb::gil_scoped_release unlocked;
  slot_softmax(lists, from, {dropout, seed}, to, num_threads);
}

void slot_softmax_arrays_backward(const Indices& indptr, const InputMatrix& attention,
                                  const InputMatrix& grad_attention, const OutputMatrix& grad_scores,
                                  unsigned num_threads) {
  const Matrix<const float> weights = read(attention), grad = read(grad_attention);
  const Matrix<float> to = write(grad_scores);
  const NeighborLists lists{as_span(indptr), {}, false};
  const nb::gil_scoped_release unlocked;
  slot_softmax_backward(lists, weights, grad, to, num_threads);
}

void slot_products_arrays(const Indices& indptr, const Indices& sources, const InputRows& rows,
                          const InputMatrix& targets, const OutputMatrix& products, unsigned num_threads) {
  const Matrix<const float> of_targets = read(targets);
  const Matrix<float> to = write(products);
  const NeighborLists lists{as_span(indptr), as_span(sources), false};
  visit_rows(rows, [&](const auto& from) {
    const nb::gil_scoped_release unlocked;
    slot_products(lists, from, of_targets, to, num_threads);
  });
}

void attend_arrays(const Indices& indptr, const Indices& sources, std::size_t begin, std::size_t end,
                   const InputMatrix& attention, float scale, const InputRows& rows, const OutputMatrix& out,
                   unsigned num_threads, bool has_loops, bool is_attention) {
  const SlotWeights weights{read(attention), scale, is_attention};
  const Matrix<float> to = write(out);
  const NeighborLists lists{as_span(indptr), as_span(sources), has_loops};
  visit_rows(rows, [&](const auto& from) {
    const nb::gil_scoped_release unlocked;
    attend(lists, {begin, end}, weights, from, to, num_threads);
  });
}

void attend_arrays_backward_attention(const Indices& indptr, const Indices& sources, std::size_t begin, std::size_t end,
                                      const InputMatrix& attention, float scale, const InputRows& rows,
                                      const InputMatrix& grad_out, const OutputMatrix& grad_attention,
                                      unsigned num_threads, bool has_loops, bool is_attention) {
  const SlotWeights weights{read(attention), scale, is_attention};
  const Matrix<const float> grad = read(grad_out);
  const Matrix<float> to = write(grad_attention);
  const NeighborLists lists{as_span(indptr), as_span(sources), has_loops};
  visit_rows(rows, [&](const auto& from) {
    const nb::gil_scoped_release unlocked;
    attend_backward_attention(lists, {begin, end}, weights, from, grad, to, num_threads);
  });
}

void attend_arrays_backward_rows(const Indices& indptr, const Indices& sources, std::size_t begin, std::size_t end,
                                 const InputMatrix& attention, float scale, const InputMatrix& grad_out,
                                 const OutputMatrix& grad_rows, unsigned num_threads, bool has_loops,
                                 bool is_attention) {
  const SlotWeights weights{read(attention), scale, is_attention};
  const Matrix<const float> grad = read(grad_out);
  const Matrix<float> to = write(grad_rows);
  const NeighborLists lists{as_span(indptr), as_span(sources), has_loops};
  const nb::gil_scoped_release unlocked;
  attend_backward_rows(lists, {begin, end}, weights, grad, to, num_threads);
}

}  // namespace

void bind_attention(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written in place.
  module.def("attention", &attention_arrays, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "source_scores"_a.noconvert(), "target_scores"_a.noconvert(), "negative_slope"_a, "dropout"_a, "seed"_a,
             "out"_a.noconvert(), "num_threads"_a, "Compute the softmax over neighbour lists; see attention.hpp.");
  module.def("attention_backward", &attention_arrays_backward, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "source_scores"_a.noconvert(), "target_scores"_a.noconvert(), "negative_slope"_a,
             "attention"_a.noconvert(), "grad_attention"_a.noconvert(), "grad_source_scores"_a.noconvert(),
             "grad_target_scores"_a.noconvert(), "num_threads"_a,
             "Fill the gradients of the scores; see attention.hpp.");
  module.def("slot_softmax", &slot_softmax_arrays, "indptr"_a.noconvert(), "scores"_a.noconvert(), "dropout"_a,
             "seed"_a, "out"_a.noconvert(), "num_threads"_a,
             "Compute the softmax of scores by slot over neighbour lists; see attention.hpp.");
  module.def("slot_softmax_backward", &slot_softmax_arrays_backward, "indptr"_a.noconvert(), "attention"_a.noconvert(),
             "grad_attention"_a.noconvert(), "grad_scores"_a.noconvert(), "num_threads"_a,
             "Fill the gradient of slot_softmax()'s scores; see attention.hpp.");
  module.def("slot_products", &slot_products_arrays, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "rows"_a.noconvert(), "targets"_a.noconvert(), "products"_a.noconvert(), "num_threads"_a,
             "Multiply the rows of slots and targets by head; see attention.hpp.");
  module.def("attend", &attend_arrays, "indptr"_a.noconvert(), "sources"_a.noconvert(), "begin"_a, "end"_a,
             "attention"_a.noconvert(), "scale"_a, "rows"_a.noconvert(), "out"_a.noconvert(), "num_threads"_a,
             "has_loops"_a = true, "is_attention"_a = true, "Sum rows by attention; see attention.hpp.");
  module.def("attend_backward_attention", &attend_arrays_backward_attention, "indptr"_a.noconvert(),
             "sources"_a.noconvert(), "begin"_a, "end"_a, "attention"_a.noconvert(), "scale"_a, "rows"_a.noconvert(),
             "grad_out"_a.noconvert(), "grad_attention"_a.noconvert(), "num_threads"_a, "has_loops"_a = true,
             "is_attention"_a = true, "Fill the gradient of the attention; see attention.hpp.");
  module.def("attend_backward_rows", &attend_arrays_backward_rows, "indptr"_a.noconvert(), "sources"_a.noconvert(),
             "begin"_a, "end"_a, "attention"_a.noconvert(), "scale"_a, "grad_out"_a.noconvert(),
             "grad_rows"_a.noconvert(), "num_threads"_a, "has_loops"_a = true, "is_attention"_a = true,
             "Add the gradient of the rows; see attention.hpp.");
}

}  // namespace diskhop
