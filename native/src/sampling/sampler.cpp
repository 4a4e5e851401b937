#include "diskhop/sampling/sampler.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "sampling/hop_lists.hpp"
#include "sampling/idle_workspaces.hpp"
#include "sampling/local_ids.hpp"
#include "sampling/sampler_workspace.hpp"

namespace diskhop {
namespace {

template <typename Lists, typename Word, typename LocalIds>
class NeighborSamplerOf final : public NeighborSampler {
 public:
  NeighborSamplerOf(const Lists& topology, const std::vector<std::int64_t>& fanouts)
      : topology_(topology), hops_(topology.types, fanouts) {}

  SampledBlocks sample(std::span<const std::int64_t> seeds, std::span<const std::int64_t> /*times*/, const DrawKey& key,
                       BufferPool& pool) override {
    const SharedReads reads(topology_);
    std::unique_ptr<BatchWorkspace> workspace = take_workspace();  // discarded if an error is thrown
    workspace->start(seeds);
    for (std::size_t number = 0; number < hops_.size(); ++number) {
      hops_.with_hop(number, [&](const auto& hop) { workspace->expand(hop, make_hop_key(key, number, 0)); });
    }
    SampledBlocks blocks = workspace->finish(pool);
    idle_.give_back(std::move(workspace));
    return blocks;
  }

  std::size_t workspace_bytes() const override { return idle_.most(&BatchWorkspace::num_bytes); }
  std::size_t reading_bytes() const override { return idle_.most(&BatchWorkspace::reading_bytes); }

 private:
  using BatchWorkspace = Workspace<Lists, Word, LocalIds>;

  std::unique_ptr<BatchWorkspace> take_workspace() {
    return idle_.take([this] {
      if constexpr (std::is_same_v<LocalIds, NodeArray<Word>>) {
        return std::make_unique<BatchWorkspace>(topology_, NodeArray<Word>(topology_.num_nodes()));
      } else {
        return std::make_unique<BatchWorkspace>(topology_, NodeTable<Word>());
      }
    });
  }

  Lists topology_;
  Hops hops_;
  IdleWorkspaces<BatchWorkspace> idle_;
};

template <typename Lists, typename Word>
std::unique_ptr<NeighborSampler> make_with_words(const Lists& topology, const std::vector<std::int64_t>& fanouts) {
  if (topology.num_nodes() <= max_array_nodes) {
    return std::make_unique<NeighborSamplerOf<Lists, Word, NodeArray<Word>>>(topology, fanouts);
  }
  return std::make_unique<NeighborSamplerOf<Lists, Word, NodeTable<Word>>>(topology, fanouts);
}

template <typename Lists>
std::unique_ptr<NeighborSampler> make_with_lists(const Lists& topology, const std::vector<std::int64_t>& fanouts) {
  require_fanouts(topology, fanouts);
  constexpr std::uint64_t max_short = std::numeric_limits<std::uint32_t>::max();
  if (std::max({topology.indptr.size(), topology.num_nodes() + 1, topology.num_edges()}) <= max_short) {
    return make_with_words<Lists, std::uint32_t>(topology, fanouts);
  }
  return make_with_words<Lists, std::uint64_t>(topology, fanouts);
}

}  // namespace

template <typename Index>
std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<Index>& topology,
                                                       std::vector<std::int64_t> fanouts) {
  return make_with_lists(topology, std::move(fanouts));
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_cached_sampler(const CachedTopology<Index>& topology,
                                                     std::vector<std::int64_t> fanouts) {
  require_parts(topology);
  return make_with_lists(topology, std::move(fanouts));
}

template std::unique_ptr<NeighborSampler> make_neighbor_sampler<std::uint32_t>(const Topology<std::uint32_t>&,
                                                                               std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_neighbor_sampler<std::int64_t>(const Topology<std::int64_t>&,
                                                                              std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_cached_sampler<std::uint32_t>(const CachedTopology<std::uint32_t>&,
                                                                             std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_cached_sampler<std::int64_t>(const CachedTopology<std::int64_t>&,
                                                                            std::vector<std::int64_t>);

}  // namespace diskhop
