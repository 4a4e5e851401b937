// Python bindings of sums over streamed lists; see streamed_lists.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "column_block.hpp"
#include "diskhop/hops/streamed_lists.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using Indptr = InputArray<std::int64_t>;
// uint32 or int64.
using Indices = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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

}  // namespace

void bind_streamed_lists(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: values are read and written in place.
  module.def("add_neighbor_sums", &add_neighbor_sums_arrays, "block"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "first_edge"_a, "out"_a.noconvert(), "num_threads"_a,
             "Add sums of a block's rows over edges in memory; see streamed_lists.hpp.");
}

}  // namespace diskhop
