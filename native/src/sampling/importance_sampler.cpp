#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "diskhop/sampling/importance.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/idle_workspaces.hpp"
#include "sampling/importance_workspace.hpp"
#include "sampling/local_ids.hpp"

namespace diskhop {
namespace {

template <typename Lists, typename Candidates>
class ImportanceSampler final : public NeighborSampler {
 public:
  ImportanceSampler(const Lists& topology, const std::vector<std::int64_t>& fanouts, const ImportanceOptions& options)
      : topology_(topology), hops_(topology.types, fanouts), options_(options) {
    for (const std::int64_t fanout : fanouts) {
      const bool is_scaled = options.method == ImportanceMethod::fastgcn;
      scales_.push_back(is_scaled ? find_degree_scale(topology.indptr, static_cast<std::uint64_t>(fanout)) : 0);
    }
  }

  SampledBlocks sample(std::span<const std::int64_t> seeds, std::span<const std::int64_t> /*times*/, const DrawKey& key,
                       BufferPool& pool) override {
    const SharedReads reads(topology_);
    auto workspace =
        idle_.take([this] { return std::make_unique<Workspace>(topology_, options_.method, make_candidates()); });
    workspace->start(seeds);
    for (std::size_t number = 0; number < hops_.size(); ++number) {
      const NodeDraws draw(key, number, options_.batch_dependency);
      hops_.with_hop(number, [&](const auto& hop) { workspace->expand(hop, draw, scales_[number]); });
    }
    SampledBlocks blocks = workspace->finish(pool);
    idle_.give_back(std::move(workspace));
    return blocks;
  }

  std::size_t workspace_bytes() const override { return idle_.most(&Workspace::num_bytes); }
  std::size_t reading_bytes() const override { return idle_.most(&Workspace::reading_bytes); }

 private:
  using Workspace = ImportanceWorkspace<Lists, Candidates>;

  [[nodiscard]] Candidates make_candidates() const {
    if constexpr (std::is_constructible_v<Candidates, std::uint64_t>) {
      return Candidates(topology_.num_nodes());
    } else {
      return Candidates();
    }
  }

  Lists topology_;
  Hops hops_;
  ImportanceOptions options_;
  std::vector<double> scales_;
  IdleWorkspaces<Workspace> idle_;
};

}  // namespace

template <typename Lists>
std::unique_ptr<NeighborSampler> make_importance_sampler(const Lists& topology, std::vector<std::int64_t> fanouts,
                                                         const ImportanceOptions& options) {
  require_fanouts(topology, fanouts);
  if constexpr (is_cached<Lists>) require_parts(topology);
  if (options.batch_dependency == 0) throw std::invalid_argument("the batch dependency must be at least 1");
  if (topology.types != nullptr &&
      (options.method == ImportanceMethod::ladies || options.method == ImportanceMethod::fastgcn)) {
    throw std::invalid_argument("ladies and fastgcn sample graphs with one type");
  }
  const bool has_candidates =
      options.method == ImportanceMethod::balanced_labor || options.method == ImportanceMethod::ladies;
  if (has_candidates && topology.num_nodes() <= max_array_nodes) {
    return std::make_unique<ImportanceSampler<Lists, NodeArray<std::uint64_t>>>(topology, fanouts, options);
  }
  return std::make_unique<ImportanceSampler<Lists, NodeTable<std::uint64_t>>>(topology, fanouts, options);
}

template std::unique_ptr<NeighborSampler> make_importance_sampler(const Topology<std::uint32_t>&,
                                                                  std::vector<std::int64_t>, const ImportanceOptions&);
template std::unique_ptr<NeighborSampler> make_importance_sampler(const Topology<std::int64_t>&,
                                                                  std::vector<std::int64_t>, const ImportanceOptions&);
template std::unique_ptr<NeighborSampler> make_importance_sampler(const CachedTopology<std::uint32_t>&,
                                                                  std::vector<std::int64_t>, const ImportanceOptions&);
template std::unique_ptr<NeighborSampler> make_importance_sampler(const CachedTopology<std::int64_t>&,
                                                                  std::vector<std::int64_t>, const ImportanceOptions&);

}  // namespace diskhop
