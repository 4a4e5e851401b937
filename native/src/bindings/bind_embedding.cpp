#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "bindings.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "tensors.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using AnyVector = nb::ndarray<nb::ndim<1>, nb::device::cpu>;
using AnyConstVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu>;

template <typename Value, typename Array>
Matrix<Value> as_matrix(const Array& array, const char* name) {
  if (!is_of(nb::dtype<float>(), array)) throw std::invalid_argument(std::string(name) + " must be float32");
  const std::size_t num_columns = array.shape(1);
  // Arrays without rows have arbitrary strides.
  if (array.size() == 0) return {nullptr, array.shape(0), num_columns, num_columns};
  return {as_values<Value>(array).data(), array.shape(0), num_columns, num_columns};
}

template <typename Value, typename Array>
std::span<Value> as_vector(const Array& array, const char* name) {
  using Plain = std::remove_const_t<Value>;
  if (!is_of(nb::dtype<Plain>(), array)) {
    throw std::invalid_argument(std::string(name) +
                                (std::is_same_v<Plain, float> ? " must be float32" : " must be int64"));
  }
  if (array.shape(0) > 1 && array.stride(0) != 1)
    throw std::invalid_argument(std::string(name) + " must be contiguous");
  return {static_cast<Value*>(array.data()), array.size()};
}

Distance distance_of(const std::string& kind) {
  if (kind == "l1") return Distance::l1;
  if (kind == "modulus") return Distance::modulus;
  throw std::invalid_argument("distance_scores: kind must be l1 or modulus, got " + kind);
}

void update_rows(RowUpdater& updater, const AnyMatrix& values, const AnyMatrix& squares, const AnyConstVector& rows,
                 const AnyConstMatrix& grads, float lr, float epsilon) {
  const auto table = as_matrix<float>(values, "values");
  const auto of_squares = as_matrix<float>(squares, "squares");
  const auto of_rows = as_vector<const std::int64_t>(rows, "rows");
  const auto given = as_matrix<const float>(grads, "grads");
  const nb::gil_scoped_release unlocked;
  updater.update(table, of_squares, of_rows, given, {.lr = lr, .epsilon = epsilon});
}

void softmax_arrays(const AnyMatrix& scores, const AnyConstVector& positives, const AnyVector& positive_grads,
                    const AnyVector& losses, bool with_positive, unsigned num_threads) {
  const auto of_negatives = as_matrix<float>(scores, "scores");
  const auto of_positives = as_vector<const float>(positives, "positives");
  const auto grads = as_vector<float>(positive_grads, "positive_grads");
  const auto of_rows = as_vector<float>(losses, "losses");
  const nb::gil_scoped_release unlocked;
  contrastive_softmax(of_negatives, of_positives, grads, of_rows, with_positive, num_threads);
}

// (answers, negatives, known, begins, ends)
using AnyLeftOut = std::array<AnyConstVector, 5>;

LeftOut as_left_out(const AnyLeftOut& nodes) {
  return {.answers = as_vector<const std::int64_t>(nodes[0], "answers"),
          .negatives = as_vector<const std::int64_t>(nodes[1], "negatives"),
          .known = as_vector<const std::int64_t>(nodes[2], "known"),
          .begins = as_vector<const std::int64_t>(nodes[3], "begins"),
          .ends = as_vector<const std::int64_t>(nodes[4], "ends")};
}

void mask_arrays(const AnyLeftOut& left_out, const AnyMatrix& scores) {
  const LeftOut nodes = as_left_out(left_out);
  const auto masked = as_matrix<float>(scores, "scores");
  const nb::gil_scoped_release unlocked;
  mask_scores(nodes, masked);
}

bool has_product_gradients() { return find_mkl().has_value(); }

ProductScore product_score_of(const std::string& name) {
  if (name == "dot") return ProductScore::dot;
  if (name == "distmult") return ProductScore::distmult;
  if (name == "complex") return ProductScore::complex;
  throw std::invalid_argument("product_gradients: score must be dot, distmult or complex, got " + name);
}

// (nodes, known for destinations, known for sources, begins, ends)
double product_gradients_arrays(const std::string& score, const AnyConstMatrix& nodes, const AnyConstMatrix& relations,
                                const AnyConstVector& rows, const AnyConstVector& relation_rows,
                                const AnyLeftOut& left_out, const AnyMatrix& grads, const AnyMatrix& relation_grads,
                                std::size_t num_edges, std::size_t chunk_size, std::size_t num_negatives,
                                bool with_positive, bool is_reciprocal, float l2, float n3, unsigned num_threads,
                                BufferPool* scratch) {
  static const std::optional<MatrixProducts> products = find_mkl();
  if (!products) throw std::runtime_error("this build of torch has no MKL");
  const ProductBatch batch{.score = product_score_of(score),
                           .with_positive = with_positive,
                           .is_reciprocal = is_reciprocal,
                           .l2 = l2,
                           .n3 = n3,
                           .num_edges = num_edges,
                           .chunk_size = chunk_size,
                           .num_negatives = num_negatives,
                           .nodes = as_matrix<const float>(nodes, "nodes"),
                           .relations = as_matrix<const float>(relations, "relations"),
                           .rows = as_vector<const std::int64_t>(rows, "rows"),
                           .relation_rows = as_vector<const std::int64_t>(relation_rows, "relation_rows"),
                           .left_out = {.nodes = as_vector<const std::int64_t>(left_out[0], "nodes"),
                                        .known = {as_vector<const std::int64_t>(left_out[1], "known destinations"),
                                                  as_vector<const std::int64_t>(left_out[2], "known sources")},
                                        .begins = as_vector<const std::int64_t>(left_out[3], "begins"),
                                        .ends = as_vector<const std::int64_t>(left_out[4], "ends")},
                           .grads = as_matrix<float>(grads, "grads"),
                           .relation_grads = as_matrix<float>(relation_grads, "relation_grads")};
  const nb::gil_scoped_release unlocked;
  BufferPool unshared(0);
  return product_gradients(*products, batch, scratch != nullptr ? *scratch : unshared, num_threads);
}

void distance_arrays(const AnyConstMatrix& queries, const AnyConstMatrix& points, const std::string& kind,
                     const AnyMatrix& scores, unsigned num_threads) {
  const auto from = as_matrix<const float>(queries, "queries");
  const auto to = as_matrix<const float>(points, "points");
  const auto found = as_matrix<float>(scores, "scores");
  const Distance distance = distance_of(kind);
  const nb::gil_scoped_release unlocked;
  distance_scores(distance, from, to, found, num_threads);
}

void distance_arrays_backward(const AnyConstMatrix& queries, const AnyConstMatrix& points, const std::string& kind,
                              const AnyConstMatrix& grads, const AnyMatrix& grad_queries, const AnyMatrix& grad_points,
                              unsigned num_threads) {
  const auto from = as_matrix<const float>(queries, "queries");
  const auto to = as_matrix<const float>(points, "points");
  const auto given = as_matrix<const float>(grads, "grads");
  const auto of_queries = as_matrix<float>(grad_queries, "grad_queries");
  const auto of_points = as_matrix<float>(grad_points, "grad_points");
  const Distance distance = distance_of(kind);
  const nb::gil_scoped_release unlocked;
  distance_scores_backward(distance, from, to, given, of_queries, of_points, num_threads);
}

}  // namespace

void bind_embedding(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written in place.
  nb::class_<RowUpdater>(module, "RowUpdater", "Adagrad for rows of tables; see embedding.hpp.")
      .def(nb::init<unsigned>(), "num_threads"_a)
      .def("update", &update_rows, "values"_a.noconvert(), "squares"_a.noconvert(), "rows"_a.noconvert(),
           "grads"_a.noconvert(), "lr"_a, "epsilon"_a);
  module.def("contrastive_softmax", &softmax_arrays, "scores"_a.noconvert(), "positives"_a.noconvert(),
             "positive_grads"_a.noconvert(), "losses"_a.noconvert(), "with_positive"_a, "num_threads"_a,
             "Compute losses against negatives, and replace scores by gradients; see embedding.hpp.");
  module.def("mask_scores", &mask_arrays, "left_out"_a, "scores"_a.noconvert(),
             "Set the scores of excluded negatives to -inf; see embedding.hpp.");
  module.def("has_product_gradients", &has_product_gradients, "Return whether torch's library has the products.");
  module.def("product_gradients", &product_gradients_arrays, "score"_a, "nodes"_a.noconvert(),
             "relations"_a.noconvert(), "rows"_a.noconvert(), "relation_rows"_a.noconvert(), "left_out"_a,
             "grads"_a.noconvert(), "relation_grads"_a.noconvert(), "num_edges"_a, "chunk_size"_a, "num_negatives"_a,
             "with_positive"_a, "is_reciprocal"_a, "l2"_a, "n3"_a, "num_threads"_a, "scratch"_a = nb::none(),
             "Return the loss of a batch and fill its gradients; see embedding.hpp.");
  module.def("product_scratch_bytes", &product_scratch_bytes, "dim"_a, "num_negatives"_a, "num_threads"_a,
             "Return the bytes that product_gradients() takes from its pool.");
  module.def("distance_scores", &distance_arrays, "queries"_a.noconvert(), "points"_a.noconvert(), "kind"_a,
             "scores"_a.noconvert(), "num_threads"_a, "Fill scores with negative distances; see embedding.hpp.");
  module.def("distance_scores_backward", &distance_arrays_backward, "queries"_a.noconvert(), "points"_a.noconvert(),
             "kind"_a, "grads"_a.noconvert(), "grad_queries"_a.noconvert(), "grad_points"_a.noconvert(),
             "num_threads"_a, "Fill the gradients of distance_scores()'s inputs.");
}

}  // namespace diskhop
