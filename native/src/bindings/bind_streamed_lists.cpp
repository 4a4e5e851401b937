// Python bindings of sums over streamed lists; see streamed_lists.hpp and streamed_attention.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "column_block.hpp"
#include "diskhop/hops/streamed_attention.hpp"
#include "diskhop/hops/streamed_lists.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using Indptr = InputArray<std::int64_t>;
// uint32 or int64.
using Indices = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using InputMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using OutputMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

StreamedLists as_lists(const Indptr& indptr, const Indices& indices, std::int64_t first_edge) {
  if (indices.dtype() != nb::dtype<std::uint32_t>() && indices.dtype() != nb::dtype<std::int64_t>()) {
    throw std::invalid_argument("streamed lists: indices must be uint32 or int64");
  }
  return {.indptr = as_span(indptr),
          .indices = static_cast<const std::byte*>(indices.data()),
          .index_bytes = static_cast<unsigned>(indices.itemsize()),
          .first_edge = first_edge,
          .num_edges = static_cast<std::int64_t>(indices.size())};
}

void add_neighbor_sums_arrays(ColumnBlock& block, const Indptr& indptr, const Indices& indices, std::int64_t first_edge,
                              const OutputMatrix& out, unsigned num_threads) {
  const StreamedLists lists = as_lists(indptr, indices, first_edge);
  const auto to = as_matrix<float>(out, "neighbor sums");
  const nb::gil_scoped_release unlocked;
  add_neighbor_sums(lists, block.block, to, num_threads, block.sums_ahead);
}

void add_attention_norms_arrays(const InputMatrix& source_scores, const InputMatrix& target_scores,
                                float negative_slope, const Indptr& indptr, const Indices& indices,
                                std::int64_t first_edge, const OutputMatrix& norms, unsigned num_threads) {
  const StreamedLists lists = as_lists(indptr, indices, first_edge);
  const auto of_sources = as_matrix<const float>(source_scores, "attention norms");
  const auto of_targets = as_matrix<const float>(target_scores, "attention norms");
  const auto to = as_matrix<float>(norms, "attention norms");
  const nb::gil_scoped_release unlocked;
  add_attention_norms(lists, of_sources, of_targets, negative_slope, to, num_threads);
}

void add_attended_rows_arrays(ColumnBlock& block, const std::vector<AttendedHead>& heads,
                              const InputMatrix& target_scores, const InputMatrix& norms, float negative_slope,
                              const Indptr& indptr, const Indices& indices, std::int64_t first_edge,
                              const OutputMatrix& out, unsigned num_threads) {
  const StreamedLists lists = as_lists(indptr, indices, first_edge);
  const AttentionTargets targets{as_matrix<const float>(target_scores, "attended rows"),
                                 as_matrix<const float>(norms, "attended rows"), negative_slope};
  const auto to = as_matrix<float>(out, "attended rows");
  const nb::gil_scoped_release unlocked;
  add_attended_rows(lists, block.block, heads, targets, to, num_threads, block.attended_ahead);
}

}  // namespace

void bind_streamed_lists(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written in place.
  module.def("add_neighbor_sums", &add_neighbor_sums_arrays, "block"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "first_edge"_a, "out"_a.noconvert(), "num_threads"_a,
             "Add sums of a block's rows over edges in memory; see streamed_lists.hpp.");

  module.def("add_attention_norms", &add_attention_norms_arrays, "source_scores"_a.noconvert(),
             "target_scores"_a.noconvert(), "negative_slope"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "first_edge"_a, "norms"_a.noconvert(), "num_threads"_a,
             "Add edges in memory to the norms of attention; see streamed_attention.hpp.");

  nb::class_<AttendedHead>(module, "AttendedHead")
      .def(
          "__init__",
          [](AttendedHead* self, std::size_t head, std::size_t score_column, std::size_t first_column,
             std::size_t num_columns, std::size_t out_column) {
            new (self) AttendedHead{.head = head,
                                    .score_column = score_column,
                                    .first_column = first_column,
                                    .num_columns = num_columns,
                                    .out_column = out_column};
          },
          nb::kw_only(), "head"_a, "score_column"_a, "first_column"_a, "num_columns"_a, "out_column"_a);

  module.def("add_attended_rows", &add_attended_rows_arrays, "block"_a, "heads"_a, "target_scores"_a.noconvert(),
             "norms"_a.noconvert(), "negative_slope"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "first_edge"_a,
             "out"_a.noconvert(), "num_threads"_a,
             "Add sums of a block's rows by attention; see streamed_attention.hpp.");
}

}  // namespace diskhop
