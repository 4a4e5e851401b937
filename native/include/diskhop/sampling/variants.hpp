// Neighbour sampling in ways other than uniform, once, and along the drawn edges alone: PyG's NeighborSampler in full.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "diskhop/sampling/column.hpp"
#include "diskhop/sampling/sampler.hpp"

namespace diskhop {

/// The edges of a batch. directional: the drawn ones. bidirectional: those and their opposites, each once, sorted by
/// target and source; of edges with equal ends the one with the lowest position stays. induced: all edges of the graph
/// among the batch's nodes, in the order of the lists; with edge times those not later than the seed.
enum class Subgraph : std::uint8_t { directional, bidirectional, induced };

/// How to draw from a list.
///
/// A list has its candidates: all edges, or those not later than the seed if there are times. takes_latest: of them the
/// latest count, by time and then position. Weights: draws in proportion to them; an edge of weight 0 is never drawn.
/// replaces: the fan-out is drawn with replacement, from any list that has a candidate; a fan-out of -1 still takes
/// each once. Draws are defined in picks.hpp; their keys are those of sampler.hpp, with the number of the seed absorbed
/// before the node if subgraphs are disjoint.
///
/// nodes_per_partition: above 0, nodes are in partitions of this many consecutive ones, up to 63 of them. The times of
/// a batch's seeds are then all the same: a bit per partition, lowest first, 1 if it is resident. Candidates are the
/// neighbours in resident partitions.
///
/// is_disjoint: every seed has a subgraph of its own, in which a node is expanded once. Seeds may repeat. Times need
/// it.
struct NeighborOptions {
  bool replaces = false;
  bool is_disjoint = false;
  bool takes_latest = false;
  Subgraph subgraph = Subgraph::directional;
  Column weights{};                       // of edges; neither negative nor infinite
  Column edge_times{};                    // whole numbers, as node_times
  Column node_times{};                    // in memory; of these two at most one
  std::uint64_t nodes_per_partition = 0;  // without times
};

/// Makes a sampler whose batches depend on the same things as those of make_neighbor_sampler(), and which throws the
/// same, and std::domain_error for a weight that is negative or not finite, naming its edge. Seeds need times if edges
/// have some. Whole lists are looked at, with their weights and times, in pieces of up to 2^17 edges, or one list: this
/// bounds the memory, see reading_bytes().
template <typename Lists>
[[nodiscard]] std::unique_ptr<NeighborSampler> make_variant_sampler(const Lists& topology,
                                                                    std::vector<std::int64_t> fanouts,
                                                                    const NeighborOptions& options);

extern template std::unique_ptr<NeighborSampler> make_variant_sampler(const Topology<std::uint32_t>&,
                                                                      std::vector<std::int64_t>,
                                                                      const NeighborOptions&);
extern template std::unique_ptr<NeighborSampler> make_variant_sampler(const Topology<std::int64_t>&,
                                                                      std::vector<std::int64_t>,
                                                                      const NeighborOptions&);
extern template std::unique_ptr<NeighborSampler> make_variant_sampler(const CachedTopology<std::uint32_t>&,
                                                                      std::vector<std::int64_t>,
                                                                      const NeighborOptions&);
extern template std::unique_ptr<NeighborSampler> make_variant_sampler(const CachedTopology<std::int64_t>&,
                                                                      std::vector<std::int64_t>,
                                                                      const NeighborOptions&);

}  // namespace diskhop
