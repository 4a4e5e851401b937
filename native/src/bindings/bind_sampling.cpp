#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/base/permutation.hpp"
#include "diskhop/sampling/budget.hpp"
#include "diskhop/sampling/column.hpp"
#include "diskhop/sampling/graph_types.hpp"
#include "diskhop/sampling/importance.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "diskhop/sampling/split_types.hpp"
#include "diskhop/sampling/variants.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

/// Says that counts are of nodes by type, among the arguments that make a sampler.
struct BudgetOptions {};

template <typename Index>
std::unique_ptr<NeighborSampler> make_sampler(const InputArray<std::int64_t>& indptr, const InputArray<Index>& indices,
                                              std::vector<std::int64_t> fanouts, const NeighborOptions* options,
                                              const GraphTypes* types) {
  const Topology<Index> topology{as_span(indptr), as_span(indices), types};
  if (options != nullptr) return make_variant_sampler(topology, std::move(fanouts), *options);
  return make_neighbor_sampler<Index>(topology, std::move(fanouts));
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_cached(const InputArray<std::int64_t>& indptr,
                                             const InputArray<std::uint64_t>& blocks, const InputArray<Index>& lists,
                                             SharedScan& scan, std::vector<std::int64_t> fanouts,
                                             const NeighborOptions* options, const GraphTypes* types) {
  const CachedTopology<Index> topology{
      .indptr = as_span(indptr), .blocks = as_span(blocks), .lists = as_span(lists), .scan = &scan, .types = types};
  if (options != nullptr) return make_variant_sampler(topology, std::move(fanouts), *options);
  return make_cached_sampler<Index>(topology, std::move(fanouts));
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_by_importance(const InputArray<std::int64_t>& indptr,
                                                    const InputArray<Index>& indices, std::vector<std::int64_t> fanouts,
                                                    const ImportanceOptions& options, const GraphTypes* types) {
  return make_importance_sampler(Topology<Index>{as_span(indptr), as_span(indices), types}, std::move(fanouts),
                                 options);
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_cached_by_importance(const InputArray<std::int64_t>& indptr,
                                                           const InputArray<std::uint64_t>& blocks,
                                                           const InputArray<Index>& lists, SharedScan& scan,
                                                           std::vector<std::int64_t> fanouts,
                                                           const ImportanceOptions& options, const GraphTypes* types) {
  const CachedTopology<Index> topology{
      .indptr = as_span(indptr), .blocks = as_span(blocks), .lists = as_span(lists), .scan = &scan, .types = types};
  return make_importance_sampler(topology, std::move(fanouts), options);
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_by_budget(const InputArray<std::int64_t>& indptr,
                                                const InputArray<Index>& indices, std::vector<std::int64_t> counts,
                                                const BudgetOptions& /*options*/, const GraphTypes* types) {
  return make_budget_sampler(Topology<Index>{as_span(indptr), as_span(indices), types}, std::move(counts));
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_cached_by_budget(const InputArray<std::int64_t>& indptr,
                                                       const InputArray<std::uint64_t>& blocks,
                                                       const InputArray<Index>& lists, SharedScan& scan,
                                                       std::vector<std::int64_t> counts,
                                                       const BudgetOptions& /*options*/, const GraphTypes* types) {
  const CachedTopology<Index> topology{
      .indptr = as_span(indptr), .blocks = as_span(blocks), .lists = as_span(lists), .scan = &scan, .types = types};
  return make_budget_sampler(topology, std::move(counts));
}

nb::tuple sample(NeighborSampler& sampler, const InputArray<std::int64_t>& seeds, std::uint64_t seed,
                 std::uint64_t purpose, std::uint64_t epoch, std::uint64_t batch, nb::handle_t<BufferPool> pool,
                 const std::optional<InputArray<std::int64_t>>& times) {
  SampledBlocks blocks;
  {
    auto& memory = nb::cast<BufferPool&>(pool);
    const nb::gil_scoped_release unlocked;
    const DrawKey key{.seed = seed, .purpose = purpose, .epoch = epoch, .batch = batch};
    blocks = sampler.sample(as_span(seeds), times ? as_span(*times) : std::span<const std::int64_t>(), key, memory);
  }
  const nb::capsule owner = lend(pool, std::move(blocks.memory));
  const auto as_array = [&owner]<typename Value>(std::span<Value> values) {
    return OutputArray<Value>(values.data(), {values.size()}, owner);
  };
  return nb::make_tuple(as_array(blocks.node_ids), as_array(blocks.indptr), as_array(blocks.sources),
                        as_array(blocks.edge_positions), std::move(blocks.num_sampled_nodes),
                        std::move(blocks.num_sampled_edges), blocks.read_counts.reads, blocks.read_counts.bytes_read,
                        as_array(blocks.seed_of), as_array(blocks.row_ids), as_array(blocks.node_rows),
                        as_array(blocks.edge_weights));
}

constexpr std::array<std::pair<std::string_view, ColumnType>, 9> column_types{{{"int8", ColumnType::int8},
                                                                               {"uint8", ColumnType::uint8},
                                                                               {"int16", ColumnType::int16},
                                                                               {"uint16", ColumnType::uint16},
                                                                               {"int32", ColumnType::int32},
                                                                               {"uint32", ColumnType::uint32},
                                                                               {"int64", ColumnType::int64},
                                                                               {"float32", ColumnType::float32},
                                                                               {"float64", ColumnType::float64}}};

ColumnType column_type(std::string_view name) {
  for (const auto& [known, type] : column_types) {
    if (known == name) return type;
  }
  throw std::invalid_argument("no column has the type '" + std::string(name) + "'");
}

void make_column(Column* self, const InputArray<std::uint8_t>& values, std::string_view type) {
  new (self) Column{.exists = true, .type = column_type(type), .values = std::as_bytes(as_span(values))};
}

void make_scanned_column(Column* self, SharedScan& scan, std::string_view type) {
  new (self) Column{.exists = true, .type = column_type(type), .scan = &scan};
}

Subgraph subgraph_of(std::string_view name) {
  if (name == "directional") return Subgraph::directional;
  if (name == "bidirectional") return Subgraph::bidirectional;
  if (name == "induced") return Subgraph::induced;
  throw std::invalid_argument("no subgraph is '" + std::string(name) + "'");
}

void make_options(NeighborOptions* self, bool replaces, bool is_disjoint, bool takes_latest, std::string_view subgraph,
                  const Column* weights, const Column* edge_times, const Column* node_times,
                  std::uint64_t nodes_per_partition) {
  const auto given = [](const Column* column) { return column == nullptr ? Column{} : *column; };
  new (self) NeighborOptions{.replaces = replaces,
                             .is_disjoint = is_disjoint,
                             .takes_latest = takes_latest,
                             .subgraph = subgraph_of(subgraph),
                             .weights = given(weights),
                             .edge_times = given(edge_times),
                             .node_times = given(node_times),
                             .nodes_per_partition = nodes_per_partition};
}

ImportanceMethod method_of(std::string_view name) {
  if (name == "labor") return ImportanceMethod::labor;
  if (name == "balanced_labor") return ImportanceMethod::balanced_labor;
  if (name == "ladies") return ImportanceMethod::ladies;
  if (name == "fastgcn") return ImportanceMethod::fastgcn;
  throw std::invalid_argument("no method is '" + std::string(name) + "'");
}

void make_importance_options(ImportanceOptions* self, std::string_view method, std::uint64_t batch_dependency) {
  new (self) ImportanceOptions{.method = method_of(method), .batch_dependency = batch_dependency};
}

OutputArray<std::int64_t> permute(std::uint64_t num_items, std::uint64_t seed, std::uint64_t purpose,
                                  std::uint64_t epoch) {
  std::vector<std::int64_t> order;
  {
    const nb::gil_scoped_release unlocked;
    order = keyed_permutation(num_items, seed, purpose, epoch);
  }
  return as_array(std::move(order));
}

nb::tuple split(const GraphTypes& types, const InputArray<std::int64_t>& edge_starts,
                const InputArray<std::int64_t>& node_ids, const InputArray<std::int64_t>& indptr,
                const InputArray<std::int32_t>& sources, const InputArray<std::int64_t>& edge_positions) {
  SplitBatch batch;
  {
    const nb::gil_scoped_release unlocked;
    batch = split_types(types, as_span(edge_starts), as_span(node_ids), as_span(indptr), as_span(sources),
                        as_span(edge_positions));
  }
  nb::list nodes;
  for (SplitBatch::Nodes& each : batch.nodes) {
    nodes.append(nb::make_tuple(as_array(std::move(each.node_ids)), as_array(std::move(each.places))));
  }
  nb::list edges;
  for (SplitBatch::Edges& each : batch.edges) {
    edges.append(nb::make_tuple(as_array(std::move(each.indptr)), as_array(std::move(each.sources)),
                                as_array(std::move(each.positions)), as_array(std::move(each.places))));
  }
  return nb::make_tuple(nodes, edges);
}

template <typename Index>
void bind_make_sampler(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: a topology of another dtype must be refused, never copied.
  module.def("make_neighbor_sampler", &make_sampler<Index>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "fanouts"_a, "options"_a.none() = nb::none(), "types"_a.none() = nb::none(), nb::keep_alive<0, 1>(),
             nb::keep_alive<0, 2>(), nb::keep_alive<0, 4>(), nb::keep_alive<0, 5>(),
             "Make a sampler over a topology; the draws are defined in random.hpp.");
  module.def("make_cached_sampler", &make_cached<Index>, "indptr"_a.noconvert(), "blocks"_a.noconvert(),
             "lists"_a.noconvert(), "scan"_a, "fanouts"_a, "options"_a.none() = nb::none(),
             "types"_a.none() = nb::none(), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>(),
             nb::keep_alive<0, 4>(), nb::keep_alive<0, 6>(), nb::keep_alive<0, 7>(),
             "Make a sampler over partly cached lists; see CachedTopology in sampler.hpp.");
  module.def("make_neighbor_sampler", &make_by_budget<Index>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "fanouts"_a, "options"_a, "types"_a.none() = nb::none(), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
             nb::keep_alive<0, 5>());
  module.def("make_cached_sampler", &make_cached_by_budget<Index>, "indptr"_a.noconvert(), "blocks"_a.noconvert(),
             "lists"_a.noconvert(), "scan"_a, "fanouts"_a, "options"_a, "types"_a.none() = nb::none(),
             nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>(),
             nb::keep_alive<0, 7>());
  // Degrees of the whole graph may be read.
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  module.def("make_neighbor_sampler", &make_by_importance<Index>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "fanouts"_a, "options"_a, "types"_a.none() = nb::none(), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
             nb::keep_alive<0, 5>(), unlocked);
  module.def("make_cached_sampler", &make_cached_by_importance<Index>, "indptr"_a.noconvert(), "blocks"_a.noconvert(),
             "lists"_a.noconvert(), "scan"_a, "fanouts"_a, "options"_a, "types"_a.none() = nb::none(),
             nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>(),
             nb::keep_alive<0, 7>(), unlocked);
}

}  // namespace

void bind_sampling(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<NeighborSampler>(module, "NeighborSampler")
      .def(
          "sample", &sample, "seeds"_a.noconvert(), "seed"_a, "purpose"_a, "epoch"_a, "batch"_a, "pool"_a,
          "times"_a.noconvert().none() = nb::none(),
          "Sample the in-neighbourhood of unique seeds. Returns the fields of a SampledBatch, with arrays in memory of "
          "the pool; sampler.hpp lists the errors.")
      .def_prop_ro("workspace_bytes", &NeighborSampler::workspace_bytes)
      .def_prop_ro("reading_bytes", &NeighborSampler::reading_bytes);
  nb::class_<Column>(module, "Column", "Numbers of edges or nodes, in memory or read by a scan; see column.hpp.")
      .def("__init__", &make_column, "values"_a.noconvert(), "type"_a, nb::keep_alive<1, 2>())
      .def("__init__", &make_scanned_column, "scan"_a, "type"_a, nb::keep_alive<1, 2>());
  nb::class_<NeighborOptions>(module, "NeighborOptions", "Ways to draw neighbours; see variants.hpp.")
      .def("__init__", &make_options, nb::kw_only(), "replaces"_a = false, "is_disjoint"_a = false,
           "takes_latest"_a = false, "subgraph"_a = "directional", "weights"_a.none() = nb::none(),
           "edge_times"_a.none() = nb::none(), "node_times"_a.none() = nb::none(), "nodes_per_partition"_a = 0,
           nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(), nb::keep_alive<1, 8>());
  nb::class_<ImportanceOptions>(module, "ImportanceOptions", "Samplers that choose nodes; see importance.hpp.")
      .def("__init__", &make_importance_options, "method"_a, "batch_dependency"_a = 1);
  nb::class_<BudgetOptions>(module, "BudgetOptions", "Sampling of nodes by budget; see budget.hpp.").def(nb::init<>());
  nb::class_<GraphTypes>(module, "GraphTypes", "Types of a graph's nodes and edges; see graph_types.hpp.")
      .def(nb::init<std::vector<std::int64_t>, std::vector<std::int64_t>, std::vector<std::int64_t>>(), "node_starts"_a,
           "list_starts"_a, "destinations"_a);
  bind_make_sampler<std::uint32_t>(module);
  bind_make_sampler<std::int64_t>(module);
  module.def("split_types", &split, "types"_a, "edge_starts"_a.noconvert(), "node_ids"_a.noconvert(),
             "indptr"_a.noconvert(), "sources"_a.noconvert(), "edge_positions"_a.noconvert(),
             "Split a batch by type; see split_types.hpp.");
  module.def("hop_read_bytes", &hop_read_bytes, "num_lists"_a, "num_edges"_a,
             "Return the bytes in which a sampler reads the edges of one hop from lists on the disk.");
  module.def("keyed_permutation", &permute, "num_items"_a, "seed"_a, "purpose"_a, "epoch"_a,
             "Return 0 .. num_items - 1 in an order that depends only on the key.");
}

}  // namespace diskhop
