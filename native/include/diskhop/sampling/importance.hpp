// Samplers that choose nodes, not edges: LABOR, LADIES and FastGCN. They look at whole neighbour lists.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "diskhop/sampling/sampler.hpp"

namespace diskhop {

/// Which neighbours of a hop's lists are kept. Every node t has one uniform draw r_t per hop, which all lists share.
/// d_s is the length of list s, n the fan-out; parallel edges count separately, in lengths too.
///
/// labor (Balin and Catalyurek, 2023, LABOR-0): from a list longer than n, the edges with r_t < n / d_s.
/// balanced_labor (LABOR-1): with pi_t = max over the lists that have t of min(1, n / d_s), those with
///   r_t < p = min(1, c_s pi_t), where c_s makes the sum of p over the list n. Weights are 1 / p, scaled so that a
///   list's sum is its number of kept edges. (The paper chooses c_s by variance, which keeps more than n.)
/// ladies (Zou et al., 2019): n nodes for all lists together, by q_t = sum over the edges from t of 1 / d_s^2. Kept are
///   the n smallest r_t / q_t; with the next one tau, the weight of an edge is 1 / min(1, q_t tau). This is priority
///   sampling (Duffield, Lund and Thorup, 2007), whose sums are unbiased. If there are no more than n, all are kept.
/// fastgcn (Chen et al., 2018): the nodes with r_t < p = min(1, scale (in-degree of t + 1)), where the scale makes the
///   sum of p over all nodes of the graph n. The weight of an edge is 1 / p.
enum class ImportanceMethod : std::uint8_t { labor, balanced_labor, ladies, fastgcn };

/// batch_dependency: k >= 1. The draw of a node is replaced once in k consecutive batches, at a turn that is its own:
/// consecutive batches share k - 1 of k draws, and batches k apart share none.
struct ImportanceOptions {
  ImportanceMethod method = ImportanceMethod::labor;
  std::uint64_t batch_dependency = 1;
};

/// Says whether batches have weights of edges.
[[nodiscard]] constexpr bool has_edge_weights(ImportanceMethod method) { return method != ImportanceMethod::labor; }

/// Makes a sampler; a fan-out of -1 keeps all neighbours. Throws as make_neighbor_sampler() does, and
/// std::invalid_argument for a batch dependency of 0. Lists are read in pieces of up to 2^17 edges, or one list.
/// balanced_labor and ladies keep 4 bytes per edge of a hop's lists.
template <typename Lists>
[[nodiscard]] std::unique_ptr<NeighborSampler> make_importance_sampler(const Lists& topology,
                                                                       std::vector<std::int64_t> fanouts,
                                                                       const ImportanceOptions& options);

extern template std::unique_ptr<NeighborSampler> make_importance_sampler(const Topology<std::uint32_t>&,
                                                                         std::vector<std::int64_t>,
                                                                         const ImportanceOptions&);
extern template std::unique_ptr<NeighborSampler> make_importance_sampler(const Topology<std::int64_t>&,
                                                                         std::vector<std::int64_t>,
                                                                         const ImportanceOptions&);
extern template std::unique_ptr<NeighborSampler> make_importance_sampler(const CachedTopology<std::uint32_t>&,
                                                                         std::vector<std::int64_t>,
                                                                         const ImportanceOptions&);
extern template std::unique_ptr<NeighborSampler> make_importance_sampler(const CachedTopology<std::int64_t>&,
                                                                         std::vector<std::int64_t>,
                                                                         const ImportanceOptions&);

}  // namespace diskhop
