#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/sampling/budget.hpp"
#include "diskhop/sampling/graph_types.hpp"
#include "diskhop/sampling/importance.hpp"
#include "diskhop/sampling/split_types.hpp"
#include "diskhop/sampling/variants.hpp"
#include "io_testing.hpp"
#include "sampled_graphs.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

// Three node types, the second without nodes, and four edge types: 0 -> 0, 2 -> 0, 0 -> 2 and 0 -> 1.
constexpr std::int64_t num_users = 700;
constexpr std::int64_t num_items = 300;

GraphTypes make_types() {
  return {{0, num_users, num_users, num_users + num_items},
          {0, num_users, 2 * num_users, 2 * num_users + num_items, 2 * num_users + num_items},
          {0, 0, 2, 1}};
}

Graph<std::uint32_t> make_lists() {
  Graph<std::uint32_t> graph;
  std::uint64_t counter = 0;
  for (std::int64_t list = 0; list < 2 * num_users + num_items; ++list) {
    const bool has_items = list >= num_users && list < 2 * num_users;
    const std::uint64_t degree = scale64(draw64(1, counter++), 40);
    for (std::uint64_t edge = 0; edge < degree; ++edge) {
      const std::uint64_t draw = draw64(2, counter++);
      graph.indices.push_back(
          static_cast<std::uint32_t>(has_items ? num_users + scale64(draw, num_items) : scale64(draw, num_users)));
    }
    graph.indptr.push_back(static_cast<std::int64_t>(graph.indices.size()));
  }
  return graph;
}

const std::vector<std::int64_t> fanouts{4, 20, -1, 3, 0, 2, 5, 0};  // of four edge types, in two hops
const std::vector<std::int64_t> seeds{3, num_users + 5, 699, num_users};
const std::vector<std::int64_t> counts{30, 1, -1, 50, 0, 20};  // of three node types, in two hops
constexpr DrawKey key{.seed = 1, .purpose = 2, .epoch = 3, .batch = 4};

SampledBlocks sample(NeighborSampler& sampler) { return sampler.sample(seeds, {}, key, no_pool()); }

void test_types_are_found() {
  std::vector<std::int64_t> starts{0};
  for (std::int64_t type = 0; type < 40; ++type) starts.push_back(starts.back() + type % 3);
  const GraphTypes many(starts, {0}, {});
  for (std::uint64_t node = 0; node < many.num_nodes(); ++node) {
    const std::size_t type = many.type_of(node);
    check(starts[type] <= static_cast<std::int64_t>(node) && static_cast<std::int64_t>(node) < starts[type + 1],
          "a node is of the type whose range has it");
  }
  const GraphTypes few = make_types();
  check(few.type_of(0) == 0 && few.type_of(num_users - 1) == 0 && few.type_of(num_users) == 2,
        "empty types are passed");
}

void test_every_list_of_a_node_is_drawn_from() {
  const auto graph = make_lists();
  const GraphTypes types = make_types();
  auto sampler = make_neighbor_sampler<std::uint32_t>({graph.indptr, graph.indices, &types}, fanouts);
  const SampledBlocks batch = sample(*sampler);
  std::size_t edge = 0;
  for (std::size_t local = 0; local + 1 < batch.indptr.size(); ++local) {
    const std::int64_t node = batch.node_ids[local];
    const std::size_t hop = local < seeds.size() ? 0 : 4;
    std::vector<std::pair<std::int64_t, std::int64_t>> lists;  // number and fan-out
    if (node < num_users) {
      lists = {{node, fanouts[hop]}, {num_users + node, fanouts[hop + 1]}};
    } else {
      lists = {{num_users + node, fanouts[hop + 2]}};
    }
    for (const auto& [list, fanout] : lists) {
      const std::int64_t degree = graph.indptr[list + 1] - graph.indptr[list];
      const std::int64_t count = fanout < 0 ? degree : std::min(degree, fanout);
      for (std::int64_t place = 0; place < count; ++place, ++edge) {
        const std::int64_t position = batch.edge_positions[edge];
        check(graph.indptr[list] <= position && position < graph.indptr[list + 1], "an edge lies in the list");
        check(batch.node_ids[batch.sources[edge]] == graph.indices[position], "a source is the neighbour");
      }
    }
    check(static_cast<std::int64_t>(edge) == batch.indptr[local + 1], "a node has the edges of all its lists");
  }
  check(edge == batch.sources.size(), "and the batch no others");
}

void test_partly_cached_lists_give_the_same_batches() {
  const ScratchFolder folder;
  const auto graph = make_lists();
  const GraphTypes types = make_types();
  const Topology<std::uint32_t> whole{graph.indptr, graph.indices, &types};
  const NeighborOptions options{.replaces = true, .is_disjoint = true};
  const ImportanceOptions importance{.method = ImportanceMethod::balanced_labor};
  const auto engine = make_engine("threads", 4, nullptr);
  for (const std::size_t share : {0, 5, 16}) {
    GraphOnDisk<std::uint32_t> disk(graph, folder.file("indices"), *engine,
                                    [share](std::size_t list) { return list % 16 < share; });
    CachedTopology<std::uint32_t> cached = disk.topology(graph);
    cached.types = &types;
    const std::string claim = std::to_string(share) + " of 16 lists are cached";
    check_equal(sample(*make_cached_sampler(cached, fanouts)), sample(*make_neighbor_sampler(whole, fanouts)), claim);
    check_equal(sample(*make_variant_sampler(cached, fanouts, options)),
                sample(*make_variant_sampler(whole, fanouts, options)), claim + ", with options");
    check_equal(sample(*make_importance_sampler(cached, fanouts, importance)),
                sample(*make_importance_sampler(whole, fanouts, importance)), claim + ", by importance");
    check_equal(sample(*make_budget_sampler(cached, counts)), sample(*make_budget_sampler(whole, counts)),
                claim + ", by budget");
  }
}

void test_bad_types_are_refused() {
  const auto graph = make_lists();
  const GraphTypes types = make_types();
  const Topology<std::uint32_t> topology{graph.indptr, graph.indices, &types};
  check_throws<std::invalid_argument>([] { GraphTypes({0, 3, 2}, {0}, {}); }, "starts that descend");
  check_throws<std::invalid_argument>([] { GraphTypes({0, 3}, {0, 2}, {0}); }, "fewer lists than nodes");
  check_throws<std::invalid_argument>([] { GraphTypes({0, 3}, {0, 3}, {1}); }, "an unknown destination");
  check_throws<std::invalid_argument>([&] { (void)make_neighbor_sampler(topology, {1, 2, 3}); }, "too few fan-outs");
  const GraphTypes others({0, 3}, {0, 3}, {0});
  check_throws<std::invalid_argument>(
      [&] { (void)make_neighbor_sampler<std::uint32_t>({graph.indptr, graph.indices, &others}, {1}); },
      "other lists than those of the types");
  check_throws<std::invalid_argument>(
      [&] { (void)make_variant_sampler(topology, fanouts, {.subgraph = Subgraph::bidirectional}); },
      "opposites of edges, which are of other types");
  check_throws<std::invalid_argument>(
      [&] { (void)make_importance_sampler(topology, fanouts, {.method = ImportanceMethod::ladies}); },
      "one number of nodes for lists with several fan-outs");
  check_throws<std::invalid_argument>([&] { (void)make_budget_sampler(topology, {1, 2}); }, "too few counts");
  check_throws<std::invalid_argument>([&] { (void)make_budget_sampler(topology, {1, 2, -2}); }, "a negative count");
}

// A position before the first edge type's has no type at all.
void test_edges_before_the_first_type_are_refused() {
  const GraphTypes types({0, 3}, {0, 3}, {0});
  const std::vector<std::int64_t> nodes{0};
  const std::vector<std::int64_t> indptr{0, 1};
  const std::vector<std::int32_t> sources{0};
  for (const std::int64_t first : {0, 2}) {
    const std::vector<std::int64_t> starts{first, 5};
    const auto split = [&](std::int64_t position) {
      return split_types(types, starts, nodes, indptr, sources, {&position, 1}).edges.at(0).places.size();
    };
    if (first == 0) {
      check(split(1) == 1, "edge 1 is of the first type");
      check_throws<std::invalid_argument>([&] { static_cast<void>(split(5)); }, "edge 5 is of none");
    } else {
      check_throws<std::invalid_argument>([&] { static_cast<void>(split(1)); }, "types begin with edge 0");
    }
  }
}

}  // namespace

int main() {
  test_types_are_found();
  test_every_list_of_a_node_is_drawn_from();
  test_partly_cached_lists_give_the_same_batches();
  test_bad_types_are_refused();
  test_edges_before_the_first_type_are_refused();
}
