#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/graph/stream_clusters.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

/// A ring of cliques, each of `size` nodes: most edges can be within clusters.
struct Cliques {
  std::vector<std::int64_t> indptr{0};
  std::vector<std::uint32_t> sources;

  Cliques(std::uint32_t num_cliques, std::uint32_t size) {
    const std::uint32_t num_nodes = num_cliques * size;
    for (std::uint32_t node = 0; node < num_nodes; ++node) {
      for (std::uint32_t other = 0; other < size; ++other) {
        // Nodes of a clique are num_cliques apart.
        const std::uint32_t source = other * num_cliques + node % num_cliques;
        if (source != node) sources.push_back(source);
      }
      sources.push_back((node + 1) % num_nodes);
      indptr.push_back(static_cast<std::int64_t>(sources.size()));
    }
  }
};

std::vector<std::uint32_t> clusters_of(const Cliques& graph, std::uint32_t num_clusters, std::uint64_t capacity,
                                       std::size_t chunk) {
  StreamClusters clusters(graph.indptr, num_clusters, capacity);
  for (int pass = 0; pass < 4; ++pass) {
    clusters.start_pass();
    for (std::size_t first = 0; first < graph.sources.size(); first += chunk) {
      const std::size_t count = std::min(chunk, graph.sources.size() - first);
      clusters.feed<std::uint32_t>({graph.sources.data() + first, count});
    }
    clusters.end_pass();
  }
  check(clusters.num_inner_edges() <= graph.sources.size(), "no edge is within a cluster twice");
  return {clusters.cluster_of().begin(), clusters.cluster_of().end()};
}

void check_balance_and_chunks() {
  const Cliques graph(20, 12);
  const std::vector<std::uint32_t> whole = clusters_of(graph, 20, 13, graph.sources.size());
  std::vector<std::uint64_t> sizes(20);
  for (const std::uint32_t cluster : whole) ++sizes[cluster];
  check(std::ranges::max(sizes) <= 13, "no cluster has more nodes than its capacity");
  check(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) == 240, "every node is in a cluster");
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    check(clusters_of(graph, 20, 13, chunk) == whole, "chunks do not matter");
  }
  std::uint64_t inner = 0;
  for (std::size_t node = 0; node + 1 < graph.indptr.size(); ++node) {
    for (auto edge = graph.indptr[node]; edge < graph.indptr[node + 1]; ++edge) {
      inner += whole[graph.sources[static_cast<std::size_t>(edge)]] == whole[node] ? 1 : 0;
    }
  }
  check(inner * 2 > graph.sources.size(), "most edges are within clusters");
}

}  // namespace

int main() {
  check_balance_and_chunks();
  const std::vector<std::int64_t> indptr{0, 0, 0};
  StreamClusters none(indptr, 2, 1);
  none.start_pass();
  none.end_pass();
  check(none.cluster_of()[0] != none.cluster_of()[1], "nodes without edges join the smallest cluster");
  check_throws<std::invalid_argument>([&] { StreamClusters(indptr, 1, 1); }, "do not have 2 nodes");
  return 0;
}
