#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "diskhop/sampling/budget.hpp"
#include "sampling/budget_workspace.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/idle_workspaces.hpp"
#include "sampling/lists.hpp"

namespace diskhop {
namespace {

std::vector<std::int64_t> all_lists(const GraphTypes* types) {
  return std::vector<std::int64_t>(types == nullptr ? 1 : types->num_edge_types(), -1);
}

template <typename Lists>
class BudgetSampler final : public NeighborSampler {
 public:
  BudgetSampler(const Lists& topology, std::vector<std::int64_t> counts)
      : topology_(topology), counts_(std::move(counts)), hops_(topology.types, all_lists(topology.types)) {}

  SampledBlocks sample(std::span<const std::int64_t> seeds, std::span<const std::int64_t> /*times*/, const DrawKey& key,
                       BufferPool& pool) override {
    const SharedReads reads(topology_);
    auto workspace = idle_.take([this] { return std::make_unique<Workspace>(topology_); });
    workspace->start(seeds);
    SampledBlocks blocks;
    hops_.with_whole_lists([&](const auto& hop) {
      const std::size_t num_types = topology_.types == nullptr ? 1 : topology_.types->num_node_types();
      for (std::size_t number = 0; number * num_types < counts_.size(); ++number) {
        const std::span<const std::int64_t> counts{counts_.data() + number * num_types, num_types};
        workspace->expand(hop, counts, make_hop_key(key, number, 0));
      }
      blocks = workspace->finish(hop, pool);
    });
    idle_.give_back(std::move(workspace));
    return blocks;
  }

  std::size_t workspace_bytes() const override { return idle_.most(&Workspace::num_bytes); }
  std::size_t reading_bytes() const override { return idle_.most(&Workspace::reading_bytes); }

 private:
  using Workspace = BudgetWorkspace<Lists>;

  Lists topology_;
  std::vector<std::int64_t> counts_;
  Hops hops_;
  IdleWorkspaces<Workspace> idle_;
};

}  // namespace

template <typename Lists>
std::unique_ptr<NeighborSampler> make_budget_sampler(const Lists& topology, std::vector<std::int64_t> counts) {
  require_fanouts(topology, all_lists(topology.types));
  if constexpr (is_cached<Lists>) require_parts(topology);
  const std::size_t num_types = topology.types == nullptr ? 1 : topology.types->num_node_types();
  if (counts.size() % num_types != 0) {
    throw std::invalid_argument(std::to_string(counts.size()) + " counts are not the same number for each of " +
                                std::to_string(num_types) + " node types");
  }
  for (const std::int64_t count : counts) {
    if (count < -1) throw std::invalid_argument("count " + std::to_string(count) + " is below -1 (all nodes)");
  }
  return std::make_unique<BudgetSampler<Lists>>(topology, std::move(counts));
}

template std::unique_ptr<NeighborSampler> make_budget_sampler(const Topology<std::uint32_t>&,
                                                              std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_budget_sampler(const Topology<std::int64_t>&, std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_budget_sampler(const CachedTopology<std::uint32_t>&,
                                                              std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_budget_sampler(const CachedTopology<std::int64_t>&,
                                                              std::vector<std::int64_t>);

}  // namespace diskhop
