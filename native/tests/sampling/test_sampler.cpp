#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/base/permutation.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "io_testing.hpp"
#include "sampled_graphs.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_equal;
using diskhop::testing::check_throws;
using diskhop::testing::engine_names;
using diskhop::testing::Graph;
using diskhop::testing::GraphOnDisk;
using diskhop::testing::injector_with;
using diskhop::testing::make_graph;
using diskhop::testing::no_pool;
using diskhop::testing::ScratchFolder;

namespace {

template <typename Index>
SampledBlocks sample(const Graph<Index>& graph, std::span<const std::int64_t> seeds, std::vector<std::int64_t> fanouts,
                     const DrawKey& key) {
  return make_neighbor_sampler<Index>(graph.topology(), std::move(fanouts))->sample(seeds, {}, key, no_pool());
}

template <typename Index>
void check_batch(const Graph<Index>& graph, const SampledBlocks& batch, std::int64_t fanout) {
  const std::set<std::int64_t> distinct(batch.node_ids.begin(), batch.node_ids.end());
  check(distinct.size() == batch.node_ids.size(), "every node appears once");
  for (std::size_t local = 0; local + 1 < batch.indptr.size(); ++local) {
    const std::int64_t begin = graph.indptr[batch.node_ids[local]];
    const std::int64_t end = graph.indptr[batch.node_ids[local] + 1];
    const std::int64_t expected = fanout < 0 ? end - begin : std::min(fanout, end - begin);
    check(batch.indptr[local + 1] - batch.indptr[local] == expected, "a node gives min(fan-out, degree) edges");
    std::set<std::int64_t> positions;
    for (std::int64_t edge = batch.indptr[local]; edge < batch.indptr[local + 1]; ++edge) {
      const std::int64_t position = batch.edge_positions[edge];
      check(begin <= position && position < end, "an edge lies in its node's list");
      check(positions.insert(position).second, "no edge is drawn twice");
      check(batch.node_ids[batch.sources[edge]] == static_cast<std::int64_t>(graph.indices[position]),
            "a source is the neighbour at its position");
    }
  }
}

void test_batches_are_consistent() {
  const auto graph = make_graph<std::uint32_t>(3000, 40);
  const auto wide_graph = make_graph<std::int64_t>(300, 200);
  for (const std::int64_t fanout : {1, 7, 20, -1}) {
    const std::vector<std::int64_t> fanouts(2, fanout);
    for (std::uint64_t number = 0; number < 20; ++number) {
      const auto order = keyed_permutation(300, 5, 0, number);
      const std::span<const std::int64_t> seeds(order.data(), 1 + 3 * number);
      const DrawKey key{.seed = 9, .purpose = 0, .epoch = 1, .batch = number};
      check_batch(graph, sample(graph, seeds, fanouts, key), fanout);
      check_batch(wide_graph, sample(wide_graph, seeds, fanouts, key), fanout);
    }
  }
}

void test_long_lists_draw_without_repeats() {
  Graph<std::uint32_t> graph{.indptr = {0, 100'000}, .indices = std::vector<std::uint32_t>(100'000, 0)};
  for (const std::int64_t fanout : {64, 65, 1000, 99'999, 100'000}) {
    const std::vector<std::int64_t> seeds{0};
    const std::vector<std::int64_t> fanouts{fanout};
    check_batch(graph, sample(graph, seeds, fanouts, {}), fanout);
  }
}

/// Threads share a sampler; batches of different sizes share its workspaces and the pool's memory.
void test_threads_change_nothing() {
  const auto graph = make_graph<std::uint32_t>(5000, 30);
  const std::vector<std::int64_t> fanouts{5, 5, 5};
  const auto order = keyed_permutation(5000, 0, 0, 0);
  const auto seeds_of = [&](std::uint64_t number) {
    return std::span<const std::int64_t>(order).subspan(number * 20, 20 + number);
  };
  std::vector<SampledBlocks> expected;
  for (std::uint64_t number = 0; number < 50; ++number) {
    expected.push_back(sample(graph, seeds_of(number), fanouts, {.batch = number}));
  }
  const auto sampler = make_neighbor_sampler<std::uint32_t>(graph.topology(), fanouts);
  BufferPool pool(64 << 20);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t first = 0; first < 4; ++first) {
      threads.emplace_back([&, first] {
        for (std::uint64_t step = 0; step < 50; ++step) {
          const std::uint64_t number = (first * 13 + step) % 50;
          SampledBlocks batch = sampler->sample(seeds_of(number), {}, {.batch = number}, pool);
          check_equal(batch, expected[number], "a batch does not depend on the thread");
          pool.give_back(std::move(batch.memory));
        }
      });
    }
  }
  check(sampler->workspace_bytes() > 0, "a workspace is kept");
}

/// With millions of extra nodes without lists, the sampler numbers nodes by table instead of by array.
void test_both_ways_to_number_nodes_give_the_same_batches() {
  auto graph = make_graph<std::uint32_t>(20'000, 30);
  const auto order = keyed_permutation(20'000, 0, 0, 0);
  const std::vector<std::int64_t> fanouts{4, -1, 10};
  std::vector<SampledBlocks> expected;
  const auto draw_all = [&](auto use) {
    const auto sampler = make_neighbor_sampler<std::uint32_t>(graph.topology(), fanouts);
    for (std::uint64_t number = 0; number < 10; ++number) {
      use(sampler->sample({order.data() + number * 100, 1 + number * 30}, {}, {.batch = number}, no_pool()), number);
    }
  };
  draw_all([&](SampledBlocks batch, std::uint64_t) { expected.push_back(std::move(batch)); });
  graph.indptr.resize(9'000'000, graph.indptr.back());
  draw_all([&](const SampledBlocks& batch, std::uint64_t number) {
    check_equal(batch, expected[number], "array and table number alike");
  });
}

template <typename Index>
void test_partly_cached_lists_give_the_same_batches() {
  const ScratchFolder folder;
  // With millions of extra nodes without lists, nodes are numbered by table.
  for (const std::size_t num_nodes : {std::size_t{20'000}, std::size_t{9'000'000}}) {
    auto graph = make_graph<Index>(20'000, 30);
    graph.indptr.resize(num_nodes + 1, graph.indptr.back());
    const auto order = keyed_permutation(20'000, 0, 0, 0);
    for (const std::string& name : engine_names()) {
      const auto engine = make_engine(name, 16, nullptr);
      for (const std::size_t share : {0, 1, 8, 16}) {  // cached sixteenths
        if (num_nodes > 20'000 && share != 8) continue;
        GraphOnDisk<Index> on_disk(graph, folder.file("indices"), *engine,
                                   [&](std::size_t node) { return mix64(node) % 16 < share; });
        for (const std::vector<std::int64_t>& fanouts : {std::vector<std::int64_t>{4, -1, 10}, {20, 20}}) {
          const auto expected = make_neighbor_sampler<Index>(graph.topology(), fanouts);
          const auto cached = make_cached_sampler<Index>(on_disk.topology(graph), fanouts);
          std::atomic<std::uint64_t> num_reads = 0;
          std::vector<std::jthread> threads;
          for (std::uint64_t thread = 0; thread < 3; ++thread) {
            threads.emplace_back([&, thread] {
              for (std::uint64_t number = thread; number < 9; number += 3) {
                const std::span<const std::int64_t> seeds{order.data() + number * 100, 1 + number * 30};
                const SampledBlocks batch = cached->sample(seeds, {}, {.batch = number}, no_pool());
                check_equal(batch, expected->sample(seeds, {}, {.batch = number}, no_pool()),
                            "held or read, the same batch");
                // A shared read is counted by one of its batches.
                num_reads += batch.read_counts.reads;
                check((batch.read_counts.bytes_copied == 0) == (share == 16), "what is not held comes from reads");
              }
            });
          }
          threads.clear();
          check((num_reads == 0) == (share == 16), "what is not held is read");
        }
      }
    }
  }
}

void test_a_read_that_fails_is_an_error_and_leaves_the_sampler_usable() {
  const ScratchFolder folder;
  const auto graph = make_graph<std::uint32_t>(20'000, 30);
  const std::vector<std::int64_t> seeds{1, 2, 3, 4, 5};
  for (const std::string& name : engine_names()) {
    for (const FaultKind kind : {FaultKind::io_error, FaultKind::truncated}) {
      const auto engine = make_engine(name, 16, injector_with({{.kind = kind, .counted = Counted::reads, .nth = 2}}));
      GraphOnDisk<std::uint32_t> on_disk(graph, folder.file("indices"), *engine, [](auto) { return false; });
      const auto sampler = make_cached_sampler<std::uint32_t>(on_disk.topology(graph), {5, 5});
      const auto error =
          check_throws<IoError>([&] { static_cast<void>(sampler->sample(seeds, {}, {}, no_pool())); }, "a read fails");
      check(error.path() == folder.file("indices"), "the error names the file");
      check_equal(sampler->sample(seeds, {}, {}, no_pool()), sample(graph, seeds, {5, 5}, {}),
                  "sampling works after errors");
    }
  }
}

void test_mismatched_parts_are_refused() {
  const ScratchFolder folder;
  const auto graph = make_graph<std::uint32_t>(100, 5);
  const auto engine = make_engine("threads", 4, nullptr);
  GraphOnDisk<std::uint32_t> on_disk(graph, folder.file("indices"), *engine, [](auto) { return true; });
  const CachedTopology<std::uint32_t> good = on_disk.topology(graph);
  const auto refused = [](const auto& topology, const char* what) {
    check_throws<std::invalid_argument>([&] { static_cast<void>(make_cached_sampler(topology, {2})); }, what);
  };
  CachedTopology<std::uint32_t> bad = good;
  bad.blocks = good.blocks.first(good.blocks.size() - 1);
  refused(bad, "blocks that leave nodes out");
  bad = good;
  bad.lists = {};
  refused(bad, "no list at all");
  const std::vector<std::int64_t> wide(graph.indices.begin(), graph.indices.end());
  refused(CachedTopology<std::int64_t>{good.indptr, good.blocks, wide, good.scan}, "a scan of other rows");
  bad = good;
  bad.lists = good.lists.first(good.lists.size() / 2);
  const std::vector<std::int64_t> seeds{99, 98, 97};
  check_throws<std::out_of_range>(
      [&] { static_cast<void>(make_cached_sampler(bad, {2})->sample(seeds, {}, {}, no_pool())); },
      "lists that end too soon");
}

/// Node ids beyond 2^32, two with equal lower halves. The graph is reserved address space only.
void test_ids_beyond_32_bits() {
  constexpr std::int64_t beyond = std::int64_t{1} << 32;
  constexpr std::size_t num_nodes = beyond + 64;
  constexpr std::size_t num_bytes = (num_nodes + 1) * sizeof(std::int64_t);
  void* const memory =
      ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // not enough address space
  auto* const indptr = static_cast<std::int64_t*>(memory);
  std::vector<std::int64_t> indices;
  for (std::int64_t node = 0; node < 64; ++node) indices.push_back(node % 2 == 0 ? beyond + node / 2 : node / 2);
  indptr[beyond + 7] = 0;  // all others are 0 too: only this node has neighbours
  indptr[beyond + 8] = 64;
  const Topology<std::int64_t> topology{.indptr = {indptr, num_nodes + 1}, .indices = indices};
  for (const std::int64_t fanout : {10, 20, -1}) {
    const std::vector<std::int64_t> seeds{beyond + 7};
    const SampledBlocks batch = make_neighbor_sampler(topology, {fanout})->sample(seeds, {}, {.seed = 1}, no_pool());
    const std::set<std::int64_t> distinct(batch.node_ids.begin(), batch.node_ids.end());
    check(distinct.size() == batch.node_ids.size(), "every node appears once");
    check(batch.sources.size() == static_cast<std::size_t>(fanout < 0 ? 64 : fanout), "the requested number of edges");
    for (std::size_t edge = 0; edge < batch.sources.size(); ++edge) {
      check(batch.node_ids[batch.sources[edge]] == indices[batch.edge_positions[edge]], "a source is the neighbour");
    }
  }
  ::munmap(memory, num_bytes);
}

void test_bad_input_throws_and_leaves_the_sampler_usable() {
  const std::vector<std::int64_t> fanouts{2, 2};
  const auto sample_of = [&](const Graph<std::int64_t>& graph, std::vector<std::int64_t> seeds) {
    return sample(graph, seeds, fanouts, {});
  };
  const Graph<std::int64_t> good{.indptr = {0, 2, 3, 4}, .indices = {1, 2, 0, 1}};
  for (const std::int64_t seed : {std::int64_t{3}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    check_throws<std::invalid_argument>([&] { static_cast<void>(sample_of(good, {0, seed})); },
                                        "a seed outside the graph is refused");
  }
  check_throws<std::invalid_argument>([&] { static_cast<void>(sample_of(good, {1, 2, 1})); },
                                      "a repeated seed is refused");
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t index : {std::int64_t{3}, std::int64_t{-1}, huge}) {
    const Graph<std::int64_t> damaged{.indptr = {0, 2, 3, 4}, .indices = {1, index, 0, 1}};
    check_throws<std::out_of_range>([&] { static_cast<void>(sample_of(damaged, {0})); },
                                    "an index outside the graph is refused");
  }
  for (const std::vector<std::int64_t>& indptr :
       {std::vector<std::int64_t>{0, 2, 1, 4}, {0, 2, 3, 5}, {-1, 2, 3, 4}, {0, huge, 3, 4}, {huge, 0, 3, 4}}) {
    const Graph<std::int64_t> damaged{.indptr = indptr, .indices = {1, 2, 0, 1}};
    check_throws<std::out_of_range>([&] { static_cast<void>(sample_of(damaged, {0, 1, 2})); },
                                    "a list outside the edges is refused");
  }
  for (const std::int64_t fanout : {0, -2}) {
    const std::vector<std::int64_t> bad_fanouts{fanout};
    const std::vector<std::int64_t> seeds{0};
    check_throws<std::invalid_argument>([&] { static_cast<void>(sample(good, seeds, bad_fanouts, {})); },
                                        "a fan-out of 0 or below -1 is refused");
  }
  const auto sampler = make_neighbor_sampler<std::int64_t>(good.topology(), fanouts);
  const std::vector<std::int64_t> repeated{1, 1};
  check_throws<std::invalid_argument>([&] { static_cast<void>(sampler->sample(repeated, {}, {}, no_pool())); },
                                      "repeated");
  const std::vector<std::int64_t> seeds{2, 0};
  const SampledBlocks batch = sampler->sample(seeds, {}, {}, no_pool());
  check(std::ranges::equal(batch.node_ids, std::vector<std::int64_t>{2, 0, 1}), "sampling works after errors");
}

void test_permutations_have_every_item_once() {
  for (const std::uint64_t num_items : {0, 1, 2, 1000, 5000}) {
    auto order = keyed_permutation(num_items, 1, 2, 3);
    check(num_items < 1000 || !std::is_sorted(order.begin(), order.end()), "the order is not that of the items");
    std::sort(order.begin(), order.end());
    for (std::uint64_t item = 0; item < num_items; ++item) {
      check(order[item] == static_cast<std::int64_t>(item), "every item appears once");
    }
  }
}

/// A batch that may reach 2^31 nodes is refused before memory is taken for it. The graph is reserved address space
/// only: its first list is nearly 2^31 long, and only its bounds are read.
void test_batches_of_too_many_nodes_are_refused() {
  constexpr std::size_t num_nodes = (std::size_t{1} << 31) + 16;
  constexpr std::int64_t num_edges = (std::int64_t{1} << 31) - 5;
  constexpr std::size_t num_bytes = (num_nodes + 1) * sizeof(std::int64_t);
  void* const memory =
      ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // not enough address space
  auto* const indptr = static_cast<std::int64_t*>(memory);
  for (std::size_t node = 1; node <= 10; ++node) indptr[node] = num_edges;
  const std::vector<std::int64_t> seeds{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<std::int64_t> fanouts{-1};
  const Topology<std::uint32_t> topology{.indptr = {indptr, num_nodes + 1},
                                         .indices = {static_cast<std::uint32_t*>(memory), num_edges}};
  check_throws<std::length_error>(
      [&] { static_cast<void>(make_neighbor_sampler(topology, fanouts)->sample(seeds, {}, {}, no_pool())); },
      "too many nodes");
  ::munmap(memory, num_bytes);
}

}  // namespace

int main() {
  test_batches_are_consistent();
  test_long_lists_draw_without_repeats();
  test_threads_change_nothing();
  test_both_ways_to_number_nodes_give_the_same_batches();
  test_partly_cached_lists_give_the_same_batches<std::uint32_t>();
  test_partly_cached_lists_give_the_same_batches<std::int64_t>();
  test_a_read_that_fails_is_an_error_and_leaves_the_sampler_usable();
  test_mismatched_parts_are_refused();
  test_ids_beyond_32_bits();
  test_bad_input_throws_and_leaves_the_sampler_usable();
  test_permutations_have_every_item_once();
  test_batches_of_too_many_nodes_are_refused();
}
