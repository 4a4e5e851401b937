// Graphs for the tests of samplers: in memory, and with lists on the disk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "io_testing.hpp"

namespace diskhop::testing {

template <typename Index>
struct Graph {
  std::vector<std::int64_t> indptr{0};
  std::vector<Index> indices;
  [[nodiscard]] Topology<Index> topology() const { return {indptr, indices}; }
};

inline BufferPool& no_pool() {
  static BufferPool pool(0);
  return pool;
}

template <typename Value>
bool equal(std::span<Value> left, std::span<Value> right) {
  return std::ranges::equal(left, right);
}

inline void check_equal(const SampledBlocks& actual, const SampledBlocks& expected, const std::string& claim) {
  check(equal(actual.node_ids, expected.node_ids), claim + " (node ids)");
  check(equal(actual.indptr, expected.indptr), claim + " (indptr)");
  check(equal(actual.sources, expected.sources), claim + " (sources)");
  check(equal(actual.edge_positions, expected.edge_positions), claim + " (edge positions)");
  check(equal(actual.edge_weights, expected.edge_weights), claim + " (edge weights)");
  check(equal(actual.seed_of, expected.seed_of), claim + " (seeds)");
  check(equal(actual.row_ids, expected.row_ids), claim + " (rows)");
  check(equal(actual.node_rows, expected.node_rows), claim + " (rows of nodes)");
  check(actual.num_sampled_nodes == expected.num_sampled_nodes, claim + " (nodes by hop)");
  check(actual.num_sampled_edges == expected.num_sampled_edges, claim + " (edges by hop)");
}

template <typename Index>
Graph<Index> make_graph(std::size_t num_nodes, std::uint64_t max_degree) {
  Graph<Index> graph;
  std::uint64_t counter = 0;
  for (std::size_t node = 0; node < num_nodes; ++node) {
    const std::uint64_t degree = scale64(draw64(1, counter++), max_degree + 1);
    for (std::uint64_t edge = 0; edge < degree; ++edge) {
      graph.indices.push_back(static_cast<Index>(scale64(draw64(2, counter++), num_nodes)));
    }
    graph.indptr.push_back(static_cast<std::int64_t>(graph.indices.size()));
  }
  return graph;
}

/// The lists of a graph in a file, some of them also in memory.
template <typename Index>
class GraphOnDisk {
 public:
  GraphOnDisk(const Graph<Index>& graph, const std::string& path, Engine& engine, const auto& is_held)
      : file_(write(graph, path), FileMode::read, true),
        scan_(engine, file_,
              {.num_rows = graph.indices.size(), .row_bytes = sizeof(Index), .row_stride = sizeof(Index)},
              {.max_gap_bytes = 4096, .staging_bytes = 4 << 20}, pool_) {
    for (std::size_t node = 0; node + 1 < graph.indptr.size(); ++node) {
      if (node % 16 == 0) blocks_.push_back(lists_.size() << 16);
      if (!is_held(node)) continue;
      blocks_.back() |= std::uint64_t{1} << node % 16;
      lists_.insert(lists_.end(), graph.indices.begin() + graph.indptr[node],
                    graph.indices.begin() + graph.indptr[node + 1]);
    }
    if (lists_.empty()) lists_.push_back(0);
  }
  [[nodiscard]] CachedTopology<Index> topology(const Graph<Index>& graph) {
    return {.indptr = graph.indptr, .blocks = blocks_, .lists = lists_, .scan = &scan_};
  }

 private:
  static std::string write(const Graph<Index>& graph, const std::string& path) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(graph.indices.data()),
               static_cast<std::streamsize>(graph.indices.size() * sizeof(Index)));
    return path;
  }

  File file_;
  BufferPool pool_{4 << 20};
  SharedScan scan_;
  std::vector<std::uint64_t> blocks_;
  std::vector<Index> lists_;
};

}  // namespace diskhop::testing
