// Graphs for the targets of samplers: lists with some damage, types, columns and what to ask for.
#pragma once

#include <optional>

#include "diskhop/sampling/budget.hpp"
#include "diskhop/sampling/importance.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "diskhop/sampling/variants.hpp"
#include "input.hpp"

namespace diskhop::fuzz {

template <typename Index>
struct Graph {
  explicit Graph(Input& input) {
    const std::size_t first = 1 + input.below(24);
    if (input.flag()) {
      const auto second = static_cast<std::int64_t>(input.below(8));
      const auto all = static_cast<std::int64_t>(first) + second;
      // Edges among the first type, and from it to the second.
      types.emplace(std::vector<std::int64_t>{0, static_cast<std::int64_t>(first), all},
                    std::vector<std::int64_t>{0, static_cast<std::int64_t>(first), all},
                    std::vector<std::int64_t>{0, 1});
    }
    num_nodes = types ? types->num_nodes() : first;
    num_lists = types ? types->num_lists() : first;
    // Some lists of hundreds, since those are drawn from in another way.
    clean = input.offsets<std::int64_t>(num_lists, input.flag() ? 300 : 6);
    std::size_t num_edges = 0;
    for (std::size_t list = 0; list < num_lists; ++list) {
      const auto length = static_cast<std::uint64_t>(clean[list + 1]) - static_cast<std::uint64_t>(clean[list]);
      num_edges += length <= 300 ? length : 0;
    }
    indptr = clean;
    if (input.flag()) num_edges = input.below(1024);
    indices = input.ids<Index>(num_edges, num_nodes);
  }

  [[nodiscard]] const GraphTypes* graph_types() const { return types ? &*types : nullptr; }

  std::optional<GraphTypes> types;
  std::size_t num_nodes = 0;
  std::size_t num_lists = 0;
  std::vector<std::int64_t> clean;
  std::vector<std::int64_t> indptr;
  std::vector<Index> indices;
};

/// A column of numbers in memory of exactly their size.
struct OwnColumn {
  OwnColumn(Input& input, std::size_t count) : type(static_cast<ColumnType>(input.below(9))) {
    values = input.values<std::byte>(std::min(count, std::size_t{64}) * bytes_of(type));
    values.resize(count * bytes_of(type), std::byte{1});
  }
  [[nodiscard]] Column column() const { return {.exists = true, .type = type, .values = values}; }
  ColumnType type;
  std::vector<std::byte> values;
};

inline void check_batch(const SampledBlocks& batch, std::uint64_t num_nodes) {
  for (const std::int64_t node : batch.node_ids) {
    require(static_cast<std::uint64_t>(node) < num_nodes, "nodes of a batch are nodes of the graph");
  }
  const std::size_t num_sources = batch.sources.size();
  require(!batch.indptr.empty() && batch.indptr.front() == 0, "indptr begins with 0");
  require(std::is_sorted(batch.indptr.begin(), batch.indptr.end()), "indptr ascends");
  require(static_cast<std::size_t>(batch.indptr.back()) == num_sources, "indptr ends at the edges");
  for (const std::int32_t source : batch.sources) {
    require(static_cast<std::size_t>(source) < batch.node_ids.size(), "sources are nodes of the batch");
  }
}

/// Makes a sampler of any kind for the lists, and a batch or two of it.
template <typename Lists, typename MakePlain>
void sample(Input& input, const Lists& lists, std::size_t num_edge_types, std::size_t num_node_types,
            std::uint64_t num_edges, const MakePlain& make_plain) {
  const std::uint64_t num_nodes = lists.num_nodes();
  const std::size_t kind = input.below(4);
  const std::size_t num_hops = 1 + input.below(3);
  std::vector<std::int64_t> fanouts(num_hops * (kind == 3 ? num_node_types : num_edge_types));
  for (std::int64_t& fanout : fanouts) fanout = static_cast<std::int64_t>(input.below(8)) - 1;
  const auto limit = static_cast<std::size_t>(num_nodes);
  const std::vector<std::int64_t> seeds = input.ids<std::int64_t>(input.below(6), limit);
  const OwnColumn weights(input, num_edges);
  const OwnColumn times(input, input.flag() ? num_edges : num_nodes);
  NeighborOptions options{.replaces = input.flag(),
                          .is_disjoint = input.flag(),
                          .takes_latest = input.flag(),
                          .subgraph = static_cast<Subgraph>(input.below(3))};
  if (input.flag()) options.weights = weights.column();
  const std::size_t timed = input.below(3);
  if (timed == 1) options.edge_times = times.column();
  if (timed == 2) options.node_times = times.column();
  if (input.flag()) options.nodes_per_partition = input.number(32);
  const std::vector<std::int64_t> seed_times =
      input.flag() ? input.values<std::int64_t>(seeds.size()) : std::vector<std::int64_t>{};
  std::unique_ptr<NeighborSampler> sampler;
  if (kind == 0) sampler = make_plain(fanouts);
  if (kind == 1) sampler = make_variant_sampler(lists, fanouts, options);
  if (kind == 2) {
    const ImportanceOptions importance{.method = static_cast<ImportanceMethod>(input.below(4)),
                                       .batch_dependency = input.below(4)};
    sampler = make_importance_sampler(lists, fanouts, importance);
  }
  if (kind == 3) sampler = make_budget_sampler(lists, fanouts);
  BufferPool pool(0);
  for (std::uint64_t batch = 0; batch < 2; ++batch) {
    const SampledBlocks blocks = sampler->sample(seeds, seed_times, {.seed = 1, .batch = batch}, pool);
    check_batch(blocks, num_nodes);
  }
}

}  // namespace diskhop::fuzz
