#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "diskhop/sampling/variants.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/idle_workspaces.hpp"
#include "sampling/variant_workspace.hpp"

namespace diskhop {
namespace {

template <typename Lists>
class VariantSampler final : public NeighborSampler {
 public:
  VariantSampler(const Lists& topology, const std::vector<std::int64_t>& fanouts, const NeighborOptions& options)
      : topology_(topology), hops_(topology.types, fanouts), options_(options) {}

  SampledBlocks sample(std::span<const std::int64_t> seeds, std::span<const std::int64_t> times, const DrawKey& key,
                       BufferPool& pool) override {
    const SharedReads reads(topology_);
    if (!times.empty() && times.size() != seeds.size()) throw std::invalid_argument("each seed needs one time");
    auto workspace = idle_.take([this] { return std::make_unique<Workspace>(topology_, options_); });
    workspace->start(seeds, times);
    for (std::size_t number = 0; number < hops_.size(); ++number) {
      hops_.with_hop(number, [&](const auto& hop) { workspace->expand(hop, make_hop_key(key, number, 0)); });
    }
    SampledBlocks blocks = workspace->finish(hops_, pool);
    idle_.give_back(std::move(workspace));
    return blocks;
  }

  std::size_t workspace_bytes() const override { return idle_.most(&Workspace::num_bytes); }
  std::size_t reading_bytes() const override { return idle_.most(&Workspace::reading_bytes); }

 private:
  using Workspace = VariantWorkspace<Lists>;

  Lists topology_;
  Hops hops_;
  NeighborOptions options_;
  IdleWorkspaces<Workspace> idle_;
};

void require_length(const Column& column, std::uint64_t num_values, const char* what) {
  if (column.exists && column.num_values() != num_values) {
    throw std::invalid_argument(std::string(what) + " have " + std::to_string(column.num_values()) + " values, not " +
                                std::to_string(num_values));
  }
  if (column.scan == nullptr) return;
  const TableLayout& layout = column.scan->layout();
  if (layout.row_bytes != bytes_of(column.type) || layout.row_stride != bytes_of(column.type)) {
    throw std::invalid_argument(std::string(what) + " are read as rows of another size than their type's");
  }
}

}  // namespace

template <typename Lists>
std::unique_ptr<NeighborSampler> make_variant_sampler(const Lists& topology, std::vector<std::int64_t> fanouts,
                                                      const NeighborOptions& options) {
  require_fanouts(topology, fanouts);
  if constexpr (is_cached<Lists>) require_parts(topology);
  require_length(options.weights, topology.num_edges(), "weights");
  require_length(options.edge_times, topology.num_edges(), "times of edges");
  require_length(options.node_times, topology.num_nodes(), "times of nodes");
  const bool has_times = options.edge_times.exists || options.node_times.exists;
  if (options.edge_times.exists && options.node_times.exists) {
    throw std::invalid_argument("times are of edges or of nodes, not of both");
  }
  if (options.node_times.scan != nullptr) throw std::invalid_argument("times of nodes must be in memory");
  if (options.nodes_per_partition > 0 &&
      (has_times || (topology.num_nodes() - 1) / options.nodes_per_partition >= 63)) {
    throw std::invalid_argument("partitions are without times, and at most 63");
  }
  if (topology.types != nullptr && (options.nodes_per_partition > 0 || options.subgraph == Subgraph::bidirectional)) {
    throw std::invalid_argument("partitions and bidirectional subgraphs are of graphs with one type");
  }
  if (has_times && !options.is_disjoint) throw std::invalid_argument("times need disjoint subgraphs");
  if (options.takes_latest && (!has_times || options.weights.exists)) {
    throw std::invalid_argument("the latest neighbours need times, and no weights");
  }
  return std::make_unique<VariantSampler<Lists>>(topology, fanouts, options);
}

template std::unique_ptr<NeighborSampler> make_variant_sampler(const Topology<std::uint32_t>&,
                                                               std::vector<std::int64_t>, const NeighborOptions&);
template std::unique_ptr<NeighborSampler> make_variant_sampler(const Topology<std::int64_t>&, std::vector<std::int64_t>,
                                                               const NeighborOptions&);
template std::unique_ptr<NeighborSampler> make_variant_sampler(const CachedTopology<std::uint32_t>&,
                                                               std::vector<std::int64_t>, const NeighborOptions&);
template std::unique_ptr<NeighborSampler> make_variant_sampler(const CachedTopology<std::int64_t>&,
                                                               std::vector<std::int64_t>, const NeighborOptions&);

}  // namespace diskhop
