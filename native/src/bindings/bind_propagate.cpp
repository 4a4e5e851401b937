// Python bindings of hops of pre-propagation; see propagate.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "column_block.hpp"
#include "diskhop/hops/propagate.hpp"
#include "diskhop/io/buffer.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using MemoryArray = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

ValueFormat parse_format(const std::string& dtype) {
  if (dtype == "float32") return ValueFormat::float32;
  if (dtype == "float16") return ValueFormat::float16;
  if (dtype == "bfloat16") return ValueFormat::bfloat16;
  throw std::invalid_argument("dtype '" + dtype + "' is not one of: float32, float16, bfloat16");
}

/// Lists, and the staging memory of all transfers.
class BoundPass {
 public:
  BoundPass(Engine& engine, const ListFiles& lists, unsigned num_threads, std::uint64_t staging_bytes)
      : engine_(engine), lists_(lists), num_threads_(num_threads), staging_(staging_bytes) {}

  StreamCounts load(const File& file, const std::string& dtype, std::uint64_t num_tiles, std::uint64_t first_tile,
                    const ColumnBlock& block, const File* scale, std::uint64_t first_row) {
    const TableColumns table{
        .file = &file, .format = parse_format(dtype), .num_tiles = num_tiles, .first_tile = first_tile};
    const nb::gil_scoped_release unlocked;
    return load_block(streaming(), table, scale, block.block, first_row);
  }

  StreamCounts write_cold_values(const File& sources, std::uint64_t num_edges, const ColumnBlock& rows,
                                 std::uint64_t first_row, const File& values) {
    const ColdSources cold{.file = &sources, .num_edges = num_edges, .index_bytes = lists_.index_bytes};
    const nb::gil_scoped_release unlocked;
    return diskhop::write_cold_values(streaming(), cold, rows.block, first_row, values);
  }

  PassCounts run(const ColumnBlock& block, const File& out, const std::string& dtype, std::uint64_t num_tiles,
                 std::uint64_t first_tile, const File* row_scale, float product_scale, float self_weight,
                 const File* addend, float addend_scale, const std::string& addend_dtype, const File* cold_values,
                 const std::optional<InputArray<std::uint64_t>>& cold_before) {
    const TableColumns to{
        .file = &out, .format = parse_format(dtype), .num_tiles = num_tiles, .first_tile = first_tile};
    PassFormula formula;
    formula.row_scale = row_scale;
    formula.product_scale = product_scale;
    formula.self_weight = self_weight;
    if (addend != nullptr) {
      formula.addend = TableColumns{
          .file = addend, .format = parse_format(addend_dtype), .num_tiles = num_tiles, .first_tile = first_tile};
      formula.addend_scale = addend_scale;
    }
    std::optional<ColdEdges> cold;
    if (cold_values != nullptr && cold_before) cold = {.values = cold_values, .before = as_span(*cold_before)};
    const nb::gil_scoped_release unlocked;
    return run_pass(streaming(), lists_, block.block, formula, to, cold);
  }

 private:
  [[nodiscard]] Streaming streaming() const {
    return {.engine = engine_, .staging = {staging_.data(), staging_.num_bytes()}, .num_threads = num_threads_};
  }

  Engine& engine_;
  ListFiles lists_;
  unsigned num_threads_;
  Buffer staging_;
};

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DamagedListsError& error) {
    set_error("FormatError", error.what() + std::string("; run 'diskhop verify' on the dataset"));
  }
}

}  // namespace

void bind_propagate(nb::module_& module) {
  using namespace nb::literals;
  nb::register_exception_translator(translate);

  nb::class_<StreamCounts>(module, "StreamCounts")
      .def_ro("bytes_read", &StreamCounts::bytes_read)
      .def_ro("bytes_written", &StreamCounts::bytes_written)
      .def_ro("written_sum", &StreamCounts::written_sum)
      .def_ro("seconds_waiting", &StreamCounts::seconds_waiting);

  nb::class_<PassCounts>(module, "PassCounts")
      .def_ro("stream", &PassCounts::stream)
      .def_ro("num_sources", &PassCounts::num_sources)
      .def_ro("num_bad_rows", &PassCounts::num_bad_rows)
      .def_prop_ro(
          "bad_rows", [](const PassCounts& self) { return as_array(std::vector<std::int64_t>(self.bad_rows)); },
          nb::rv_policy::move);

  nb::class_<ColumnBlock>(module, "ColumnBlock")
      .def(
          "__init__",
          [](ColumnBlock* self, const MemoryArray& memory, std::uint64_t num_rows, std::uint64_t num_columns) {
            new (self) ColumnBlock{.block = block_in({memory.data(), memory.size()}, num_rows, num_columns)};
          },
          "memory"_a.noconvert(), "num_rows"_a, "num_columns"_a, nb::keep_alive<1, 2>());

  nb::class_<BoundPass>(module, "PropagationPass")
      .def(
          "__init__",
          [](BoundPass* self, Engine& engine, const File& indptr, std::uint64_t indptr_offset, const File& indices,
             std::uint64_t indices_offset, unsigned index_bytes, std::uint64_t num_nodes, std::uint64_t num_edges,
             unsigned num_threads, std::uint64_t staging_bytes, const File* weights, std::uint64_t weights_offset) {
            const ListFiles lists{.indptr = &indptr,
                                  .indptr_offset = indptr_offset,
                                  .indices = &indices,
                                  .indices_offset = indices_offset,
                                  .index_bytes = index_bytes,
                                  .num_nodes = num_nodes,
                                  .num_edges = num_edges,
                                  .weights = weights,
                                  .weights_offset = weights_offset};
            new (self) BoundPass(engine, lists, num_threads, staging_bytes);
          },
          "engine"_a, "indptr"_a, "indptr_offset"_a, "indices"_a, "indices_offset"_a, "index_bytes"_a, "num_nodes"_a,
          "num_edges"_a, "num_threads"_a, "staging_bytes"_a, "weights"_a.none() = nb::none(), "weights_offset"_a = 0,
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 12>())
      .def("load", &BoundPass::load, "file"_a, "dtype"_a, "num_tiles"_a, "first_tile"_a, "block"_a, "scale"_a.none(),
           "first_row"_a = 0)
      .def("write_cold_values", &BoundPass::write_cold_values, "sources"_a, "num_edges"_a, "rows"_a, "first_row"_a,
           "values"_a)
      .def("run", &BoundPass::run, "block"_a, "out"_a, "dtype"_a, "num_tiles"_a, "first_tile"_a, nb::kw_only(),
           "row_scale"_a.none(), "product_scale"_a, "self_weight"_a, "addend"_a.none() = nb::none(),
           "addend_scale"_a = 0.0F, "addend_dtype"_a = "float32", "cold_values"_a.none() = nb::none(),
           "cold_before"_a.none() = nb::none());
}

}  // namespace diskhop
