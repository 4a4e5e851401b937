#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/base/permutation.hpp"
#include "diskhop/sampling/variants.hpp"
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

/// Weights and times, in memory and on the disk.
template <typename Number>
class Numbers {
 public:
  Numbers(std::size_t count, std::uint64_t bound, ColumnType type) : type_(type) {
    for (std::size_t place = 0; place < count; ++place) {
      values_.push_back(static_cast<Number>(scale64(draw64(11, place), bound)));
    }
  }
  [[nodiscard]] Column column() const {
    return {.exists = true, .type = type_, .values = std::as_bytes(std::span(values_))};
  }
  [[nodiscard]] std::vector<Number>& values() { return values_; }

 private:
  ColumnType type_;
  std::vector<Number> values_;
};

class NumbersOnDisk {
 public:
  NumbersOnDisk(const Column& column, const std::string& path, Engine& engine)
      : type_(column.type),
        file_(write(column, path), FileMode::read, true),
        scan_(engine, file_,
              {.num_rows = column.num_values(), .row_bytes = bytes_of(type_), .row_stride = bytes_of(type_)},
              {.max_gap_bytes = 4096, .staging_bytes = 4 << 20}, pool_) {}
  [[nodiscard]] Column column() { return {.exists = true, .type = type_, .scan = &scan_}; }

 private:
  static std::string write(const Column& column, const std::string& path) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(column.values.data()), static_cast<std::streamsize>(column.values.size()));
    return path;
  }

  ColumnType type_;
  File file_;
  BufferPool pool_{4 << 20};
  SharedScan scan_;
};

struct Ways {
  std::string name;
  NeighborOptions options;
  bool has_weights = false;
  bool has_edge_times = false;
};

std::vector<Ways> all_ways() {
  std::vector<Ways> ways;
  for (const auto subgraph : {Subgraph::directional, Subgraph::bidirectional, Subgraph::induced}) {
    const std::string name = std::to_string(static_cast<int>(subgraph));
    ways.push_back({"again " + name, {.replaces = true, .subgraph = subgraph}});
    ways.push_back({"disjoint " + name, {.is_disjoint = true, .subgraph = subgraph}});
    ways.push_back({"weights " + name, {.subgraph = subgraph}, true});
    ways.push_back({"weights and times " + name, {.is_disjoint = true, .subgraph = subgraph}, true, true});
    ways.push_back({"latest " + name, {.is_disjoint = true, .takes_latest = true, .subgraph = subgraph}, false, true});
  }
  return ways;
}

/// Lists, weights and times in memory, partly cached or all on the disk, and threads, change nothing.
template <typename Index>
void test_everything_on_the_disk_gives_the_same_batches() {
  const ScratchFolder folder;
  const auto graph = make_graph<Index>(800, 60);
  Numbers<float> weights(graph.indices.size(), 5, ColumnType::float32);
  Numbers<std::int64_t> times(graph.indices.size(), 100, ColumnType::int64);
  const auto order = keyed_permutation(800, 0, 0, 0);
  const std::vector<std::int64_t> seed_times(order.begin(), order.begin() + 100);
  const std::vector<std::int64_t> fanouts{6, -1};
  for (const std::string& engine_name : engine_names()) {
    const auto engine = make_engine(engine_name, 16, nullptr);
    for (const std::size_t share : {0, 8, 16}) {
      GraphOnDisk<Index> on_disk(graph, folder.file("indices"), *engine,
                                 [&](std::size_t node) { return mix64(node) % 16 < share; });
      NumbersOnDisk weights_on_disk(weights.column(), folder.file("weights"), *engine);
      NumbersOnDisk times_on_disk(times.column(), folder.file("times"), *engine);
      for (const Ways& ways : all_ways()) {
        NeighborOptions in_memory = ways.options;
        NeighborOptions read = ways.options;
        if (ways.has_weights) in_memory.weights = weights.column();
        if (ways.has_weights) read.weights = weights_on_disk.column();
        if (ways.has_edge_times) in_memory.edge_times = times.column();
        if (ways.has_edge_times) read.edge_times = times_on_disk.column();
        const auto expected = make_variant_sampler(graph.topology(), fanouts, in_memory);
        const auto cached = make_variant_sampler(on_disk.topology(graph), fanouts, read);
        std::vector<std::jthread> threads;
        for (std::uint64_t thread = 0; thread < 3; ++thread) {
          threads.emplace_back([&, thread] {
            for (std::uint64_t number = thread; number < 6; number += 3) {
              const std::span<const std::int64_t> seeds{order.data() + number * 10, 1 + number * 5};
              std::span<const std::int64_t> of_seeds;
              if (ways.has_edge_times) of_seeds = {seed_times.data() + number, seeds.size()};
              const SampledBlocks batch = cached->sample(seeds, of_seeds, {.batch = number}, no_pool());
              check_equal(batch, expected->sample(seeds, of_seeds, {.batch = number}, no_pool()), ways.name);
            }
          });
        }
        threads.clear();
        check(cached->reading_bytes() > 0 && cached->workspace_bytes() > 0, "memory is counted");
      }
    }
  }
}

/// A hub's list is longer than a piece; the pieces before and after it have many lists.
void test_long_lists_are_looked_at_in_pieces() {
  auto graph = make_graph<std::uint32_t>(2000, 100);
  const std::size_t hub_edges = 150'000;
  for (std::size_t edge = 0; edge < hub_edges; ++edge) {
    graph.indices.push_back(static_cast<std::uint32_t>(scale64(draw64(3, edge), 2000)));
  }
  graph.indptr.push_back(static_cast<std::int64_t>(graph.indices.size()));
  Numbers<double> weights(graph.indices.size(), 5, ColumnType::float64);
  std::vector<std::int64_t> seeds{5, 2000, 7};
  for (const std::int64_t fanout : {std::int64_t{1000}, std::int64_t{-1}}) {
    const auto sampler = make_variant_sampler(graph.topology(), {fanout, 5}, {.weights = weights.column()});
    const SampledBlocks batch = sampler->sample(seeds, {}, {}, no_pool());
    std::vector<std::int64_t> drawn(batch.edge_positions.begin() + batch.indptr[1],
                                    batch.edge_positions.begin() + batch.indptr[2]);
    std::ranges::sort(drawn);
    check(std::ranges::adjacent_find(drawn) == drawn.end(), "no edge is drawn twice");
    for (const std::int64_t position : drawn) {
      check(position >= graph.indptr[2000] && position < graph.indptr[2001], "of the hub's list");
      check(weights.values()[position] > 0, "with a weight");
    }
    check(fanout < 0 ? drawn.size() > hub_edges / 2 : drawn.size() == 1000, "as many as are asked for");
  }
}

void test_node_times_of_every_type_are_read_alike() {
  const auto graph = make_graph<std::int64_t>(1000, 30);
  Numbers<std::int64_t> wide(1000, 100, ColumnType::int64);
  const std::vector<std::int8_t> narrow(wide.values().begin(), wide.values().end());
  const std::vector<std::uint32_t> middle(wide.values().begin(), wide.values().end());
  const auto draw = [&](const Column& times) {
    const NeighborOptions options{.is_disjoint = true, .node_times = times};
    const std::vector<std::int64_t> seeds{3, 3, 900};
    return make_variant_sampler(graph.topology(), {5, 5}, options)->sample(seeds, {}, {.seed = 1}, no_pool());
  };
  const SampledBlocks expected = draw(wide.column());
  for (std::size_t local = 0; local < expected.node_ids.size(); ++local) {
    const std::int64_t seed = expected.node_ids[expected.seed_of[local]];
    check(wide.values()[expected.node_ids[local]] <= wide.values()[seed], "no node is later than its seed");
    check(expected.row_ids[expected.node_rows[local]] == expected.node_ids[local], "a node has its row");
  }
  check_equal(draw({.exists = true, .type = ColumnType::int8, .values = std::as_bytes(std::span(narrow))}), expected,
              "times of one byte");
  check_equal(draw({.exists = true, .type = ColumnType::uint32, .values = std::as_bytes(std::span(middle))}), expected,
              "times of four bytes");
}

void test_times_that_no_int64_holds_are_the_nearest() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::vector<double> wide{-2.5, -0x1p63, -1e19, -infinity, 0x1.fffffep62, 0x1p63, 1e30, std::nan("")};
  const std::vector<std::int64_t> expected{-2,   least, least, least, most - ((std::int64_t{1} << 39) - 1),
                                           most, most,  least};
  const std::vector<float> narrow(wide.begin(), wide.end());
  std::vector<std::int64_t> out(wide.size());
  convert(ColumnType::float64, std::as_bytes(std::span(wide)).data(), wide.size(), out.data());
  check(out == expected, "of 64 bits");
  convert(ColumnType::float32, std::as_bytes(std::span(narrow)).data(), narrow.size(), out.data());
  check(out == expected, "of 32 bits");
}

void test_bad_weights_and_reads_leave_the_sampler_usable() {
  const ScratchFolder folder;
  const auto graph = make_graph<std::uint32_t>(2000, 30);
  Numbers<float> weights(graph.indices.size(), 5, ColumnType::float32);
  const std::vector<std::int64_t> seeds{1, 2, 3, 4};
  const auto sampler = make_variant_sampler(graph.topology(), {3}, {.weights = weights.column()});
  const SampledBlocks expected = sampler->sample(seeds, {}, {}, no_pool());
  float& first = weights.values()[graph.indptr[2]];
  const float before = std::exchange(first, -1);
  check_throws<std::domain_error>([&] { static_cast<void>(sampler->sample(seeds, {}, {}, no_pool())); }, "negative");
  first = std::numeric_limits<float>::quiet_NaN();
  check_throws<std::domain_error>([&] { static_cast<void>(sampler->sample(seeds, {}, {}, no_pool())); }, "no number");
  first = before;
  check_equal(sampler->sample(seeds, {}, {}, no_pool()), expected, "sampling works after errors");
  for (const std::string& name : engine_names()) {
    const auto engine =
        make_engine(name, 16, injector_with({{.kind = FaultKind::io_error, .counted = Counted::reads, .nth = 1}}));
    GraphOnDisk<std::uint32_t> on_disk(graph, folder.file("indices"), *engine, [](auto) { return true; });
    NumbersOnDisk read(weights.column(), folder.file("weights"), *engine);
    const auto cached = make_variant_sampler(on_disk.topology(graph), {3}, {.weights = read.column()});
    const auto error =
        check_throws<IoError>([&] { static_cast<void>(cached->sample(seeds, {}, {}, no_pool())); }, "a read fails");
    check(error.path() == folder.file("weights"), "the error names the file");
    check_equal(cached->sample(seeds, {}, {}, no_pool()), expected, "sampling works after errors");
  }
}

void test_options_that_do_not_fit_are_refused() {
  const auto graph = make_graph<std::uint32_t>(100, 5);
  Numbers<float> weights(graph.indices.size(), 5, ColumnType::float32);
  Numbers<float> few(graph.indices.size() - 1, 5, ColumnType::float32);
  Numbers<std::int64_t> times(100, 5, ColumnType::int64);
  const auto refused = [&](const NeighborOptions& options, const char* what) {
    check_throws<std::invalid_argument>(
        [&] { static_cast<void>(make_variant_sampler(graph.topology(), {2}, options)); }, what);
  };
  refused({.weights = few.column()}, "fewer weights than edges");
  refused({.is_disjoint = true, .edge_times = times.column()}, "times of nodes as those of edges");
  refused({.node_times = times.column()}, "times without disjoint subgraphs");
  refused({.is_disjoint = true, .takes_latest = true}, "the latest without times");
  refused({.is_disjoint = true, .takes_latest = true, .weights = weights.column(), .node_times = times.column()},
          "the latest by weights");
  const std::vector<std::int64_t> seeds{1, 2};
  const std::vector<std::int64_t> one_time{1};
  const auto sampler =
      make_variant_sampler(graph.topology(), {2}, {.is_disjoint = true, .edge_times = weights.column()});
  check_throws<std::invalid_argument>([&] { static_cast<void>(sampler->sample(seeds, {}, {}, no_pool())); }, "no time");
  check_throws<std::invalid_argument>([&] { static_cast<void>(sampler->sample(seeds, one_time, {}, no_pool())); },
                                      "a time for one of two");
}

}  // namespace

int main() {
  test_everything_on_the_disk_gives_the_same_batches<std::uint32_t>();
  test_everything_on_the_disk_gives_the_same_batches<std::int64_t>();
  test_long_lists_are_looked_at_in_pieces();
  test_node_times_of_every_type_are_read_alike();
  test_times_that_no_int64_holds_are_the_nearest();
  test_bad_weights_and_reads_leave_the_sampler_usable();
  test_options_that_do_not_fit_are_refused();
}
