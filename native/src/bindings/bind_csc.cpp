// Python bindings of spilled and sorted edges; see csc.hpp and stream_file.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/graph/csc.hpp"
#include "diskhop/io/stream_file.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using IdArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu>;
using StartArray = nb::ndarray<const std::uint64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using BadEndTuple = std::optional<std::tuple<std::uint64_t, bool>>;

IdColumn as_column(const IdArray& ids) {
  const nb::dlpack::dtype dtype = ids.dtype();
  const bool is_signed = dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int);
  if ((!is_signed && dtype.code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt)) ||
      (dtype.bits != 32 && dtype.bits != 64)) {
    throw nb::type_error("ids must be integers of 32 or 64 bits");
  }
  const auto id_bytes = static_cast<unsigned>(dtype.bits / 8);
  return {.first = static_cast<const std::byte*>(ids.data()),
          .stride_bytes = static_cast<std::ptrdiff_t>(ids.stride(0)) * static_cast<std::ptrdiff_t>(id_bytes),
          .is_signed = is_signed,
          .id_bytes = id_bytes};
}

std::vector<KeyWords> as_starts(const StartArray& starts) {
  std::vector<KeyWords> words;
  for (std::size_t i = 0; i < starts.shape(0); ++i) words.push_back({starts.data()[2 * i], starts.data()[2 * i + 1]});
  return words;
}

/// add() of a spill or a table.
template <typename Taker>
BadEndTuple add_edges(Taker& taker, std::uint64_t first_number, const IdArray& sources, const IdArray& destinations) {
  if (sources.size() != destinations.size()) {
    throw std::invalid_argument("sources and destinations must be equally many, got " + std::to_string(sources.size()) +
                                " and " + std::to_string(destinations.size()));
  }
  const IdColumn source_column = as_column(sources);
  const IdColumn destination_column = as_column(destinations);
  const nb::gil_scoped_release unlocked;
  const std::optional<BadEnd> bad = taker.add(first_number, source_column, destination_column, sources.size());
  if (!bad) return std::nullopt;
  return std::tuple(bad->position, bad->is_source);
}

void require_within(std::uint64_t first, std::uint64_t count, std::uint64_t limit, const char* what) {
  if (first > limit || count > limit - first) {
    throw std::out_of_range(std::to_string(count) + " " + what + " from " + std::to_string(first) +
                            " reach beyond the last, " + std::to_string(limit));
  }
}

/// One class for both widths of keys.
struct BoundSpill {
  std::unique_ptr<EdgeSpill> spill;

  std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources, const IdColumn& destinations,
                            std::size_t count) {
    return spill->add(first_number, sources, destinations, count);
  }
};

void make_spill(BoundSpill* self, Engine& engine, BufferPool& pool, nb::handle_t<nb::str> path, const KeyLayout& layout,
                const StartArray& bucket_starts, std::uint64_t block_bytes, std::size_t num_spare_blocks) {
  const std::string encoded = path_bytes(path);
  const std::vector<KeyWords> starts = as_starts(bucket_starts);
  const nb::gil_scoped_release unlocked;
  new (self) BoundSpill{make_edge_spill(engine, pool, encoded, layout, starts, block_bytes, num_spare_blocks)};
}

/// A table and its number of edges: arguments are checked here.
struct BoundTable {
  std::unique_ptr<EdgeTable> table;
  KeyLayout layout;
  std::uint64_t num_edges;

  std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources, const IdColumn& destinations,
                            std::size_t count) {
    require_within(first_number, count, num_edges, "edges");
    return table->add(first_number, sources, destinations, count);
  }
};

struct BoundEdges {
  std::unique_ptr<SortedEdges> edges;
  KeyLayout layout;
};

struct BoundSpills {
  std::unique_ptr<SpilledEdges> spills;
  KeyLayout layout;
};

void open_spills(BoundSpills* self, Engine& engine, BufferPool& pool, const KeyLayout& layout,
                 const std::vector<nb::str>& spill_paths, const StartArray& bucket_starts, std::size_t window_blocks) {
  std::vector<std::string> paths;
  for (const auto& path : spill_paths) paths.push_back(path_bytes(path));
  const std::vector<KeyWords> starts = as_starts(bucket_starts);
  const nb::gil_scoped_release unlocked;
  new (self) BoundSpills{open_spilled_edges(engine, pool, layout, paths, starts, window_blocks), layout};
}

BoundEdges sort_range(const BoundSpills& self, const KeyRange& range) {
  const nb::gil_scoped_release unlocked;
  return {self.spills->sort(range), self.layout};
}

BoundEdges sort_table(BoundTable& self, unsigned num_threads) {
  const nb::gil_scoped_release unlocked;
  return {self.table->sort(num_threads), self.layout};
}

template <typename Value, typename Fill>
nb::object filled(std::uint64_t count, Fill fill) {
  std::vector<Value> values(count);
  {
    const nb::gil_scoped_release unlocked;
    fill(values);
  }
  return nb::cast(as_array(std::move(values)));
}

nb::object sorted_indices(const BoundEdges& self, std::uint64_t first, std::uint64_t count) {
  require_within(first, count, self.edges->num_edges(), "edges");
  const auto fill = [&](auto& values) {
    self.edges->copy_indices(first, count, reinterpret_cast<std::byte*>(values.data()));
  };
  return self.layout.index_bytes() == 4 ? filled<std::uint32_t>(count, fill) : filled<std::int64_t>(count, fill);
}

nb::object sorted_numbers(const BoundEdges& self, std::uint64_t first, std::uint64_t count) {
  require_within(first, count, self.edges->num_edges(), "edges");
  return filled<std::int64_t>(count, [&](auto& values) { self.edges->copy_numbers(first, values); });
}

nb::object sorted_indptr(const BoundEdges& self, std::uint64_t first_node, std::uint64_t count) {
  require_within(first_node, count, self.layout.num_destinations + 1, "entries");
  return filled<std::int64_t>(count, [&](auto& values) { self.edges->copy_indptr(first_node, values); });
}

std::uint64_t last_destination(const BoundEdges& self) {
  require_within(0, 1, self.edges->num_edges(), "edges");
  return self.edges->last_destination();
}

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DamagedFileError& error) {
    set_error("FormatError", error.what() + std::string("; remove it and run the command again"));
  }
}

}  // namespace

void bind_csc(nb::module_& module) {
  using namespace nb::literals;
  nb::register_exception_translator(translate);

  nb::class_<KeyLayout>(module, "KeyLayout")
      .def(
          "__init__",
          [](KeyLayout* self, std::uint64_t num_sources, std::uint64_t num_destinations, std::uint64_t num_numbers) {
            new (self) KeyLayout(make_key_layout(num_sources, num_destinations, num_numbers));
          },
          "num_sources"_a, "num_destinations"_a, "num_numbers"_a)
      .def_ro("source_bits", &KeyLayout::source_bits)
      .def_ro("destination_bits", &KeyLayout::destination_bits)
      .def_ro("number_bits", &KeyLayout::number_bits)
      .def_prop_ro("key_bytes", &KeyLayout::key_bytes)
      .def_prop_ro("index_bytes", &KeyLayout::index_bytes);

  nb::class_<BoundSpill>(module, "EdgeSpill")
      .def("__init__", &make_spill, "engine"_a, "pool"_a, "path"_a, "layout"_a, "bucket_starts"_a.noconvert(),
           "block_bytes"_a, "num_spare_blocks"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("add", &add_edges<BoundSpill>, "first_number"_a, "sources"_a.noconvert(), "destinations"_a.noconvert())
      .def("finish", [](BoundSpill& self) { self.spill->finish(); }, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<BoundEdges>(module, "SortedEdges")
      .def_prop_ro("num_edges", [](const BoundEdges& self) { return self.edges->num_edges(); })
      .def_prop_ro("last_destination", &last_destination)
      .def("indices", &sorted_indices, "first"_a, "count"_a)
      .def("numbers", &sorted_numbers, "first"_a, "count"_a)
      .def("indptr", &sorted_indptr, "first_node"_a, "count"_a);

  nb::class_<KeyRange>(module, "KeyRange").def_ro("num_edges", &KeyRange::num_edges);

  nb::class_<BoundSpills>(module, "SpilledEdges")
      .def("__init__", &open_spills, "engine"_a, "pool"_a, "layout"_a, "spill_paths"_a, "bucket_starts"_a.noconvert(),
           "window_blocks"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def(
          "cut",
          [](const BoundSpills& self, std::size_t bucket, std::uint64_t max_edges) {
            return self.spills->cut(bucket, max_edges);
          },
          "bucket"_a, "max_edges"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("sort", &sort_range, "range"_a, nb::keep_alive<0, 1>());

  nb::class_<BoundTable>(module, "EdgeTable")
      .def(
          "__init__",
          [](BoundTable* self, const KeyLayout& layout, std::uint64_t num_edges) {
            new (self) BoundTable{make_edge_table(layout, num_edges), layout, num_edges};
          },
          "layout"_a, "num_edges"_a)
      .def("add", &add_edges<BoundTable>, "first_number"_a, "sources"_a.noconvert(), "destinations"_a.noconvert())
      .def("sort", &sort_table, "num_threads"_a);
}

}  // namespace diskhop
