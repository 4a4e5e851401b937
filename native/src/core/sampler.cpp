#include "diskhop/sampler.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "draws.hpp"
#include "growing_array.hpp"
#include "local_ids.hpp"

namespace diskhop {
namespace {

constexpr std::uint64_t max_batch_nodes = (std::uint64_t{1} << 31) - 1;  // local ids are int32
// The pipeline, measured: indptr is asked for one step of lists ahead; neighbours, and then the places of their local
// ids, so many edges ahead. Lists are drawn one by one in between: arithmetic mixed with waiting is worth a quarter
// against drawing a whole step at once.
constexpr std::size_t lists_a_step = 32;
constexpr std::size_t edges_behind = 128;
constexpr std::size_t edges_a_step = 16;
// Up to here every node of the graph has a stamp (32 MiB a workspace), beyond only those that a batch reaches.
constexpr std::uint64_t max_array_nodes = std::uint64_t{8} << 20;
constexpr std::size_t array_alignment = 64;

/// One batch, and the memory of the batches before it. Word: see NeighborList.
template <typename Index, typename Word, typename LocalIds>
class Workspace {
 public:
  Workspace(const Topology<Index>& topology, LocalIds local_ids)
      : topology_(topology), num_nodes_(topology.indptr.size() - 1), local_ids_(std::move(local_ids)) {}

  void start(std::span<const std::int64_t> seeds) {
    if (seeds.size() > max_batch_nodes) throw std::length_error("a batch has at most 2^31 - 1 seeds");
    local_ids_.next_batch();
    num_expanded_ = num_edges_ = num_read_ = num_numbered_ = 0;
    num_sampled_nodes_.clear();
    num_sampled_edges_.clear();
    reserve(0, seeds.size());
    for (std::size_t place = 0; place < seeds.size(); ++place) {
      const auto node = static_cast<std::uint64_t>(seeds[place]);
      if (node >= num_nodes_) {
        throw std::invalid_argument("seed " + std::to_string(seeds[place]) + " is not a node: the graph has " +
                                    std::to_string(num_nodes_) + " nodes");
      }
      auto entry = static_cast<Word>(node);
      local_ids_.number({&entry, 1}, node_ids_.data());
      if (entry != place) {
        throw std::invalid_argument("seed " + std::to_string(seeds[place]) + " is repeated: seeds must be unique");
      }
    }
    list_ends_.reserve(1, 0);
    list_ends_[0] = 0;
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(seeds.size()));
  }

  /// Expands the nodes that the hop before discovered.
  void expand(std::uint64_t fanout, std::uint64_t hop_key) {
    const std::size_t num_known = local_ids_.num_nodes();
    const std::size_t first_edge = num_edges_;
    list_ends_.reserve(num_known + 1, num_expanded_ + 1);
    prefetch_lists(num_expanded_, std::min(num_expanded_ + lists_a_step, num_known));
    while (num_expanded_ < num_known) {
      const std::size_t end = std::min(num_expanded_ + lists_a_step, num_known);
      prefetch_lists(end, std::min(end + lists_a_step, num_known));
      expand_lists(end, fanout, hop_key);
    }
    follow_edges(0);
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(local_ids_.num_nodes() - num_known));
    num_sampled_edges_.push_back(static_cast<std::int64_t>(num_edges_ - first_edge));
  }

  /// Copies the batch to memory of its size.
  [[nodiscard]] SampledBlocks finish(BufferPool& pool) {
    const std::size_t num_nodes = local_ids_.num_nodes();
    std::size_t num_bytes = 0;
    const auto lay_out = [&num_bytes](std::size_t array_bytes) {
      const std::size_t begin = num_bytes;
      num_bytes += (array_bytes + array_alignment - 1) / array_alignment * array_alignment;
      return begin;
    };
    const std::size_t nodes_begin = lay_out(num_nodes * sizeof(std::int64_t));
    const std::size_t indptr_begin = lay_out((num_expanded_ + 1) * sizeof(std::int64_t));
    const std::size_t positions_begin = lay_out(num_edges_ * sizeof(std::int64_t));
    const std::size_t sources_begin = lay_out(num_edges_ * sizeof(std::int32_t));
    SampledBlocks blocks;
    blocks.num_sampled_nodes = num_sampled_nodes_;
    blocks.num_sampled_edges = num_sampled_edges_;
    blocks.memory = pool.take(num_bytes);
    std::byte* const memory = blocks.memory.data();
    blocks.node_ids = {reinterpret_cast<std::int64_t*>(memory + nodes_begin), num_nodes};
    blocks.indptr = {reinterpret_cast<std::int64_t*>(memory + indptr_begin), num_expanded_ + 1};
    blocks.edge_positions = {reinterpret_cast<std::int64_t*>(memory + positions_begin), num_edges_};
    blocks.sources = {reinterpret_cast<std::int32_t*>(memory + sources_begin), num_edges_};
    copy(node_ids_.data(), blocks.node_ids);
    copy(list_ends_.data(), blocks.indptr);
    copy(positions_.data(), blocks.edge_positions);
    copy(neighbors_.data(), blocks.sources);
    return blocks;
  }

  [[nodiscard]] std::size_t num_bytes() const {
    return local_ids_.num_bytes() + node_ids_.num_bytes() + list_ends_.num_bytes() + positions_.num_bytes() +
           neighbors_.num_bytes();
  }

 private:
  template <typename From, typename To>
  static void copy(const From* from, std::span<To> to) {
    std::transform(from, from + to.size(), to.data(), [](From value) { return static_cast<To>(value); });
  }

  /// Makes room for so many edges in all, and the nodes that those not yet numbered may discover.
  void reserve(std::size_t num_edges, std::size_t num_new_seeds) {
    const std::size_t num_known = local_ids_.num_nodes();
    const std::size_t max_nodes =
        std::min<std::size_t>(num_nodes_, num_known + num_edges - num_numbered_ + num_new_seeds);
    positions_.reserve(num_edges + max_draw_overrun, num_edges_);
    neighbors_.reserve(num_edges, num_read_);
    node_ids_.reserve(max_nodes + 1, num_known);  // one more than there are is written
    local_ids_.reserve(max_nodes, node_ids_.data());
  }

  void prefetch_lists(std::size_t begin, std::size_t end) {
    for (std::size_t local = begin; local < end; ++local) __builtin_prefetch(&topology_.indptr[node_ids_[local]]);
  }

  /// Draws from the lists of the next nodes, up to `end`, and asks for the neighbours.
  void expand_lists(std::size_t end, std::uint64_t fanout, std::uint64_t hop_key) {
    std::array<NeighborList<Word>, lists_a_step> lists;
    const std::size_t num_lists = end - num_expanded_;
    const auto max_edges = static_cast<std::int64_t>(topology_.indices.size());
    const std::int64_t* const indptr = topology_.indptr.data();
    const auto num_seeds = static_cast<std::uint64_t>(num_sampled_nodes_.front());
    std::uint64_t num_edges = num_edges_;
    for (std::size_t place = 0; place < num_lists; ++place) {
      const Word node = node_ids_[num_expanded_ + place];
      const std::int64_t list_begin = indptr[node];
      const std::int64_t list_end = indptr[node + 1];
      if (list_begin < 0 || list_end < list_begin || list_end > max_edges) refuse_list(node);
      const auto degree = static_cast<Word>(list_end - list_begin);
      lists[place] = {node, static_cast<Word>(list_begin), degree};
      num_edges += std::min<std::uint64_t>(fanout, degree);  // no overflow: max_batch_nodes and one list at most
      if (num_edges > max_batch_nodes || std::min(num_nodes_, num_seeds + num_edges) > max_batch_nodes) {
        throw std::length_error("a batch has 2^31 edges or nodes or more: make the batch or the fan-outs smaller");
      }
      list_ends_[num_expanded_ + place + 1] = static_cast<std::uint32_t>(num_edges);
    }
    reserve(num_edges, 0);
    static const bool has_vector = has_vector_draws();
    const bool draws_vectors = has_vector && fanout <= max_vector_fanout;
    for (std::size_t place = 0; place < num_lists; ++place) {
      Word* const positions = positions_.data() + num_edges_;
      if (draws_vectors) {
        draw_list_vector(lists[place], fanout, hop_key, positions);
      } else {
        draw_list_portable(lists[place], fanout, hop_key, positions);
      }
      const std::size_t count = std::min<std::uint64_t>(fanout, lists[place].degree);
      for (std::size_t edge = 0; edge < count; ++edge) __builtin_prefetch(&topology_.indices[positions[edge]]);
      num_edges_ += count;
      follow_edges(edges_behind);
    }
    num_expanded_ = end;
  }

  /// Reads the neighbours of drawn edges and asks for the places of their local ids, then numbers neighbours read
  /// before; both leave the last `num_behind` edges to later, which are on their way from memory.
  void follow_edges(std::size_t num_behind) {
    const Word* const positions = positions_.data();
    Word* const neighbors = neighbors_.data();
    while (num_read_ + num_behind < num_edges_) {
      const std::size_t step_end = std::min(num_edges_ - num_behind, num_read_ + edges_a_step);
      for (std::size_t edge = num_read_; edge < step_end; ++edge) {
        const auto node = static_cast<std::uint64_t>(topology_.indices[positions[edge]]);
        if (node >= num_nodes_) refuse_index(positions[edge]);
        __builtin_prefetch(local_ids_.place_of(static_cast<Word>(node)), 1);
        neighbors[edge] = static_cast<Word>(node);
      }
      num_read_ = step_end;
      number_neighbors(num_read_ - std::min(num_behind, num_read_ - num_numbered_));
    }
    if (num_behind == 0) number_neighbors(num_read_);
  }

  void number_neighbors(std::size_t end) {
    local_ids_.number({neighbors_.data() + num_numbered_, end - num_numbered_}, node_ids_.data());
    num_numbered_ = end;
  }

  /// Out of line, as below: the loop that calls it runs for every node.
  [[noreturn, gnu::noinline]] void refuse_list(Word node) const {
    throw std::out_of_range("topology is damaged: the list of node " + std::to_string(node) + " is [" +
                            std::to_string(topology_.indptr[node]) + ", " + std::to_string(topology_.indptr[node + 1]) +
                            ") of " + std::to_string(topology_.indices.size()) + " edges");
  }

  [[noreturn, gnu::noinline]] void refuse_index(Word position) const {
    throw std::out_of_range("topology is damaged: indices[" + std::to_string(position) + "] is " +
                            std::to_string(topology_.indices[position]) + ", the graph has " +
                            std::to_string(num_nodes_) + " nodes");
  }

  const Topology<Index>& topology_;
  std::uint64_t num_nodes_;
  LocalIds local_ids_;
  GrowingArray<Word> node_ids_;
  GrowingArray<std::uint32_t> list_ends_;  // of node i: list_ends_[i + 1]
  GrowingArray<Word> positions_;
  GrowingArray<Word> neighbors_;  // node ids up to num_read_, of which local ids up to num_numbered_
  std::size_t num_expanded_ = 0;
  std::size_t num_edges_ = 0;
  std::size_t num_read_ = 0;
  std::size_t num_numbered_ = 0;
  std::vector<std::int64_t> num_sampled_nodes_;
  std::vector<std::int64_t> num_sampled_edges_;
};

template <typename Index, typename Word, typename LocalIds>
class NeighborSamplerOf final : public NeighborSampler {
 public:
  NeighborSamplerOf(const Topology<Index>& topology, std::vector<std::int64_t> fanouts)
      : topology_(topology), fanouts_(std::move(fanouts)) {}

  SampledBlocks sample(std::span<const std::int64_t> seeds, const DrawKey& key, BufferPool& pool) override {
    std::unique_ptr<BatchWorkspace> workspace = take_workspace();  // not kept if an error is thrown
    workspace->start(seeds);
    for (std::size_t hop = 0; hop < fanouts_.size(); ++hop) {
      // -1 becomes the largest value: no list is longer.
      workspace->expand(static_cast<std::uint64_t>(fanouts_[hop]), make_hop_key(key, hop, 0));
    }
    SampledBlocks blocks = workspace->finish(pool);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
    return blocks;
  }

  std::size_t workspace_bytes() const override {
    const std::lock_guard lock(mutex_);
    std::size_t most_bytes = 0;
    for (const auto& workspace : idle_) most_bytes = std::max(most_bytes, workspace->num_bytes());
    return most_bytes;
  }

 private:
  using BatchWorkspace = Workspace<Index, Word, LocalIds>;

  std::unique_ptr<BatchWorkspace> take_workspace() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<BatchWorkspace> workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    if constexpr (std::is_same_v<LocalIds, NodeArray<Word>>) {
      return std::make_unique<BatchWorkspace>(topology_, NodeArray<Word>(topology_.indptr.size() - 1));
    } else {
      return std::make_unique<BatchWorkspace>(topology_, NodeTable<Word>());
    }
  }

  Topology<Index> topology_;
  std::vector<std::int64_t> fanouts_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<BatchWorkspace>> idle_;
};

template <typename Index, typename Word>
std::unique_ptr<NeighborSampler> make_with_words(const Topology<Index>& topology, std::vector<std::int64_t> fanouts) {
  if (topology.indptr.size() - 1 <= max_array_nodes) {
    return std::make_unique<NeighborSamplerOf<Index, Word, NodeArray<Word>>>(topology, std::move(fanouts));
  }
  return std::make_unique<NeighborSamplerOf<Index, Word, NodeTable<Word>>>(topology, std::move(fanouts));
}

}  // namespace

template <typename Index>
std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<Index>& topology,
                                                       std::vector<std::int64_t> fanouts) {
  if (topology.indptr.empty()) throw std::invalid_argument("indptr is empty: it has one element more than nodes");
  for (const std::int64_t fanout : fanouts) {
    if (fanout < -1 || fanout == 0) {
      throw std::invalid_argument("fan-out " + std::to_string(fanout) + " is neither positive nor -1 (all neighbours)");
    }
  }
  constexpr std::uint64_t max_short = std::numeric_limits<std::uint32_t>::max();
  if (topology.indptr.size() <= max_short && topology.indices.size() <= max_short) {
    return make_with_words<Index, std::uint32_t>(topology, std::move(fanouts));
  }
  return make_with_words<Index, std::uint64_t>(topology, std::move(fanouts));
}

template std::unique_ptr<NeighborSampler> make_neighbor_sampler<std::uint32_t>(const Topology<std::uint32_t>&,
                                                                               std::vector<std::int64_t>);
template std::unique_ptr<NeighborSampler> make_neighbor_sampler<std::int64_t>(const Topology<std::int64_t>&,
                                                                              std::vector<std::int64_t>);

}  // namespace diskhop
