// Sampling of nodes by budget: that of the Heterogeneous Graph Transformer (Hu et al., 2020, algorithms 1 and 2).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "diskhop/sampling/sampler.hpp"

namespace diskhop {

/// Makes a sampler that chooses a number of nodes of each node type per hop. The neighbours of the batch's nodes have
/// budgets: each edge of a list of length d adds 1 / d. Of the nodes of a type that have one, n are drawn in proportion
/// to its square, without replacement, and join the batch; then the lists of the new nodes add to budgets.
///
/// The draw of node v in a hop is u = draw64(absorb(hop key, v), 0); the n smallest -log(u) / budget^2 win, ascending,
/// ties to the lower node, type after type. If there are no more than n, all are taken, in the order in which they were
/// reached. Budgets are doubles, summed in the order of nodes, lists and edges. A batch has all edges of the graph
/// among its nodes, as with Subgraph::induced.
///
/// counts: of each node type for the first hop, then for the second, and so on; -1: all. The fan-outs of edge types do
/// not apply. Throws as make_neighbor_sampler() does, and std::invalid_argument for a count below -1.
template <typename Lists>
[[nodiscard]] std::unique_ptr<NeighborSampler> make_budget_sampler(const Lists& topology,
                                                                   std::vector<std::int64_t> counts);

extern template std::unique_ptr<NeighborSampler> make_budget_sampler(const Topology<std::uint32_t>&,
                                                                     std::vector<std::int64_t>);
extern template std::unique_ptr<NeighborSampler> make_budget_sampler(const Topology<std::int64_t>&,
                                                                     std::vector<std::int64_t>);
extern template std::unique_ptr<NeighborSampler> make_budget_sampler(const CachedTopology<std::uint32_t>&,
                                                                     std::vector<std::int64_t>);
extern template std::unique_ptr<NeighborSampler> make_budget_sampler(const CachedTopology<std::int64_t>&,
                                                                     std::vector<std::int64_t>);

}  // namespace diskhop
