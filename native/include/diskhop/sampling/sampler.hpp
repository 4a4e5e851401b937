// Uniform neighbour sampling without replacement, with draws that depend on nothing but their key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/rows/rows.hpp"
#include "diskhop/rows/shared_scan.hpp"

namespace diskhop {

/// In-neighbour lists in CSC. Index is std::uint32_t or std::int64_t.
template <typename Index>
struct Topology {
  using Id = Index;
  std::span<const std::int64_t> indptr;  // num_nodes + 1
  std::span<const Index> indices;
  [[nodiscard]] std::uint64_t num_edges() const { return indices.size(); }
};

/// The same lists, of which some are held whole in memory, one after the other by node (Ginex's neighbour cache,
/// section 3.2), and the others are read when they are drawn from. To find them takes half a byte a node: where in
/// `lists` a held list begins is where the first of its block's does, and the lengths of those between, which indptr
/// knows.
template <typename Index>
struct CachedTopology {
  using Id = Index;
  std::span<const std::int64_t> indptr;  // num_nodes + 1
  /// For nodes 16 i .. 16 i + 15: in the lowest 16 bits, which lists are held; above, where in `lists` the first
  /// begins.
  std::span<const std::uint64_t> blocks;
  std::span<const Index> lists;  // at least one value
  SharedScan* scan;              // of `indices`, as rows of one Index without gaps
  [[nodiscard]] std::uint64_t num_edges() const { return scan->layout().num_rows; }
};

/// The arrays of Python's SampledBatch.
struct SampledBlocks {
  Buffer memory{0};  // where the arrays lie, of the pool that was given: to be given back there
  std::span<std::int64_t> node_ids;
  std::span<std::int64_t> indptr;
  std::span<std::int64_t> edge_positions;
  std::span<std::int32_t> sources;
  std::vector<std::int64_t> num_sampled_nodes;
  std::vector<std::int64_t> num_sampled_edges;
  ReadCounts read_counts;  // of lists that are not in memory
};

/// Expands unique seeds by fan-outs (one per hop; -1: all neighbours). Every node is expanded once, when first
/// reached, in order of discovery. Of a list longer than the fan-out, fan-out positions are drawn by Floyd's method:
/// for j = degree - fan-out .. degree - 1 draw from 0 .. j; a position drawn before is replaced by j. Each is drawn
/// with probability fan-out / degree, by position, so that parallel edges count; they stay in the order of the draws.
/// A list not longer than the fan-out is taken whole, in its order.
///
/// Threading: any number of callers. Each works in a workspace of its own, which is kept for the next batch.
class NeighborSampler {
 public:
  virtual ~NeighborSampler() = default;

  /// Throws std::invalid_argument for a seed outside the graph or repeated, IoError for lists that cannot be read,
  /// std::out_of_range for a topology that is damaged where the batch touches it, std::length_error for a batch of 2^31
  /// edges or more, or whose seeds and edges together could reach as many nodes.
  [[nodiscard]] virtual SampledBlocks sample(std::span<const std::int64_t> seeds, const DrawKey& key,
                                             BufferPool& pool) = 0;

  /// Memory of the largest workspace so far, while no batch is being sampled.
  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;
};

/// The topology's arrays must outlive the sampler. Throws std::invalid_argument for a fan-out of 0 or below -1, for
/// an empty indptr, and for a cached topology whose parts do not fit each other.
template <typename Index>
[[nodiscard]] std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<Index>& topology,
                                                                     std::vector<std::int64_t> fanouts);
/// The same batches, bit for bit: draws are of positions. What a hop draws from lists that are not held joins the scan
/// as one request, so that callers that sample at the same time share their reads; a workspace then holds up to 64
/// bytes a list of the hop and 30 an edge more, and the scan 12 an edge.
template <typename Index>
[[nodiscard]] std::unique_ptr<NeighborSampler> make_cached_sampler(const CachedTopology<Index>& topology,
                                                                   std::vector<std::int64_t> fanouts);

extern template std::unique_ptr<NeighborSampler> make_neighbor_sampler<std::uint32_t>(const Topology<std::uint32_t>&,
                                                                                      std::vector<std::int64_t>);
extern template std::unique_ptr<NeighborSampler> make_neighbor_sampler<std::int64_t>(const Topology<std::int64_t>&,
                                                                                     std::vector<std::int64_t>);
extern template std::unique_ptr<NeighborSampler> make_cached_sampler<std::uint32_t>(
    const CachedTopology<std::uint32_t>&, std::vector<std::int64_t>);
extern template std::unique_ptr<NeighborSampler> make_cached_sampler<std::int64_t>(const CachedTopology<std::int64_t>&,
                                                                                   std::vector<std::int64_t>);

/// 0 .. num_items - 1, sorted by the hash absorb(k, item), where k is the seed, purpose and epoch absorbed in turn.
/// Takes 16 bytes an item, of which 8 are the result.
[[nodiscard]] std::vector<std::int64_t> keyed_permutation(std::uint64_t num_items, std::uint64_t seed,
                                                          std::uint64_t purpose, std::uint64_t epoch);

}  // namespace diskhop
