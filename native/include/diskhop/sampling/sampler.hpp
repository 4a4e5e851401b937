// Uniform neighbour sampling without replacement, with draws that depend only on their key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "diskhop/base/random.hpp"
#include "diskhop/io/buffer.hpp"
#include "diskhop/rows/rows.hpp"
#include "diskhop/rows/shared_scan.hpp"
#include "diskhop/sampling/graph_types.hpp"

namespace diskhop {

/// In-neighbour lists in CSC. Index is std::uint32_t or std::int64_t. A graph without types has one list per node, with
/// its number; below, "the list of node v" of such a graph is list v.
template <typename Index>
struct Topology {
  using Id = Index;
  std::span<const std::int64_t> indptr;  // num_lists + 1
  std::span<const Index> indices;
  const GraphTypes* types = nullptr;  // of a graph with several types
  [[nodiscard]] std::uint64_t num_edges() const { return indices.size(); }
  [[nodiscard]] std::uint64_t num_nodes() const { return types != nullptr ? types->num_nodes() : indptr.size() - 1; }
};

/// The same lists, some of them resident whole, in their order (Ginex's neighbour cache, section 3.2); the others are
/// read when needed. The index takes half a byte per list: a resident list begins where the first of its block does,
/// plus the lengths between them, which indptr has.
template <typename Index>
struct CachedTopology {
  using Id = Index;
  std::span<const std::int64_t> indptr;  // num_lists + 1
  /// For lists 16 i .. 16 i + 15: the lowest 16 bits say which lists are resident, the rest is where in `lists` the
  /// first begins.
  std::span<const std::uint64_t> blocks;
  std::span<const Index> lists;  // at least one value
  SharedScan* scan;              // reads `indices`, as contiguous rows of one Index
  const GraphTypes* types = nullptr;
  [[nodiscard]] std::uint64_t num_edges() const { return scan->layout().num_rows; }
  [[nodiscard]] std::uint64_t num_nodes() const { return types != nullptr ? types->num_nodes() : indptr.size() - 1; }
};

/// Arrays of Python's SampledBatch.
struct SampledBlocks {
  Buffer memory{0};  // memory of the arrays, to be returned to the pool that it came from
  std::span<std::int64_t> node_ids;
  std::span<std::int64_t> indptr;
  std::span<std::int64_t> edge_positions;
  std::span<std::int32_t> sources;
  std::span<float> edge_weights;      // empty if all are 1
  std::span<std::int64_t> seed_of;    // of a disjoint batch, as the next two
  std::span<std::int64_t> row_ids;    // the distinct nodes
  std::span<std::int64_t> node_rows;  // of each node: its place in row_ids
  std::vector<std::int64_t> num_sampled_nodes;
  std::vector<std::int64_t> num_sampled_edges;
  ReadCounts read_counts;  // lists that are not resident
};

/// Bytes in which a workspace reads the edges of one hop from lists on the disk. A list takes 16 bytes in each of two
/// vectors that grow by doubling. An edge takes its id, place and value with a quarter of headroom, and 12 bytes in the
/// scan.
[[nodiscard]] constexpr std::size_t hop_read_bytes(std::size_t num_lists, std::size_t num_edges) {
  return 4 * 16 * num_lists + 42 * num_edges;
}

/// Expands unique seeds by fan-outs (one per hop; -1: all neighbours). Every node is expanded once, when first reached,
/// in order of discovery. From a list longer than the fan-out, fan-out positions are drawn by Floyd's method: for j =
/// degree - fan-out .. degree - 1 draw from 0 .. j, and replace a repeated position by j. Each position has probability
/// fan-out / degree, so parallel edges count separately; they stay in the order of the draws. A list not longer than
/// the fan-out is taken whole, in its order.
///
/// A node of a graph with types has several lists, one of each edge type that ends at its type. All are drawn from, in
/// the order of the edge types, each with the fan-out of its edge type. Draws are keyed by the number of the list,
/// which stands for edge type and node. A fan-out of 0 leaves the edge type out.
///
/// Threading: any number of callers. Each uses its own workspace, which is kept for the next batch.
class NeighborSampler {
 public:
  virtual ~NeighborSampler() = default;

  /// times: of the seeds, for a sampler with times; else empty.
  /// Throws std::invalid_argument for a seed outside the graph or repeated, IoError for lists that cannot be read,
  /// std::out_of_range for a topology that is damaged where the batch reads it, std::length_error for a batch of 2^31
  /// edges or more, or one that could reach 2^31 nodes.
  [[nodiscard]] virtual SampledBlocks sample(std::span<const std::int64_t> seeds, std::span<const std::int64_t> times,
                                             const DrawKey& key, BufferPool& pool) = 0;

  /// Bytes of the largest workspace so far, while no batch is being sampled.
  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;
  /// More bytes of a workspace that reads its lists, weights and times from the disk, for batches like those so far.
  [[nodiscard]] virtual std::size_t reading_bytes() const = 0;
};

/// Makes a sampler; the topology's arrays and types must outlive it. fanouts: one per hop; of a graph with types, those
/// of all edge types for each hop. Throws std::invalid_argument for a fan-out of 0 in a graph without types, one below
/// -1, an empty indptr, types that do not match the lists, or a cached topology whose parts do not match.
template <typename Index>
[[nodiscard]] std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<Index>& topology,
                                                                     std::vector<std::int64_t> fanouts);
/// Makes a sampler of the same batches, bit for bit: draws are of positions. The draws of one hop from lists that are
/// not resident join the scan as one request, so callers that sample at the same time share reads. Memory: up to 64
/// bytes per list of the hop and 30 per edge more in a workspace, and 12 per edge in the scan.
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

}  // namespace diskhop
