// A batch of a graph with types, split by node type and edge type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diskhop/sampling/graph_types.hpp"

namespace diskhop {

/// Nodes and edges of a batch by type, each in the order of the batch. Python's TypedBatch says what the arrays are.
struct SplitBatch {
  struct Nodes {
    std::vector<std::int64_t> node_ids;  // numbers in the type
    std::vector<std::int64_t> places;
  };
  struct Edges {
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> sources;
    std::vector<std::int64_t> positions;  // in the type
    std::vector<std::int64_t> places;
  };
  std::vector<Nodes> nodes;
  std::vector<Edges> edges;
};

/// Splits a batch. edge_starts: the first edge of each edge type, and the end of the last. Throws std::invalid_argument
/// for arrays that are no batch of such a graph.
[[nodiscard]] SplitBatch split_types(const GraphTypes& types, std::span<const std::int64_t> edge_starts,
                                     std::span<const std::int64_t> node_ids, std::span<const std::int64_t> indptr,
                                     std::span<const std::int32_t> sources,
                                     std::span<const std::int64_t> edge_positions);

}  // namespace diskhop
