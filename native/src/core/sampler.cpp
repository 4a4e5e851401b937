#include "diskhop/sampler.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "local_ids.hpp"

namespace diskhop {
namespace {

constexpr std::size_t max_kept_table_bytes = 32 << 20;
constexpr std::uint64_t max_batch_nodes = (std::uint64_t{1} << 31) - 1;  // local ids are int32
// How far ahead memory is asked for: measured on random lists, flat between half and twice of each.
constexpr std::size_t nodes_ahead = 32;
constexpr std::size_t edges_ahead = 64;
constexpr std::size_t slots_ahead = 24;
// Up to here comparing a draw with all earlier ones is faster than a set.
constexpr std::uint64_t max_compared_draws = 64;

/// Floyd's method: `count` distinct positions of a list of `degree`, written to `picks`. `Draw` maps the number of the
/// draw and a bound to a value below the bound.
template <typename Draw>
void draw_positions(std::uint64_t degree, std::uint64_t count, std::int64_t list_begin, std::int64_t* picks,
                    Draw draw) {
  std::unordered_set<std::int64_t> drawn;
  const bool compares = count <= max_compared_draws;
  for (std::uint64_t number = 0; number < count; ++number) {
    const std::uint64_t last = degree - count + number;
    std::int64_t pick = list_begin + static_cast<std::int64_t>(draw(number, last + 1));
    const bool repeated = compares ? std::find(picks, picks + number, pick) != picks + number : drawn.contains(pick);
    if (repeated) pick = list_begin + static_cast<std::int64_t>(last);
    if (!compares) drawn.insert(pick);
    picks[number] = pick;
  }
}

template <typename Index>
class BatchSampler {
 public:
  BatchSampler(const Topology<Index>& topology, LocalIds& local_ids)
      : topology_(topology), num_nodes_(topology.indptr.size() - 1), local_ids_(local_ids) {}
  ~BatchSampler() { local_ids_.finish(max_kept_table_bytes); }
  BatchSampler(const BatchSampler&) = delete;
  BatchSampler& operator=(const BatchSampler&) = delete;

  void add_seeds(std::span<const std::int64_t> seeds) {
    if (seeds.size() > max_batch_nodes) throw std::length_error("a batch has at most 2^31 - 1 seeds");
    local_ids_.reserve(seeds.size(), blocks_.node_ids);
    for (std::size_t place = 0; place < seeds.size(); ++place) {
      const auto node = static_cast<std::uint64_t>(seeds[place]);
      if (node >= num_nodes_) {
        throw std::invalid_argument("seed " + std::to_string(seeds[place]) + " is not a node: the graph has " +
                                    std::to_string(num_nodes_) + " nodes");
      }
      if (local_ids_.number(node, blocks_.node_ids) != static_cast<std::int32_t>(place)) {
        throw std::invalid_argument("seed " + std::to_string(seeds[place]) + " is repeated: seeds must be unique");
      }
    }
    blocks_.indptr.push_back(0);
    blocks_.num_sampled_nodes.push_back(static_cast<std::int64_t>(seeds.size()));
  }

  /// Expands the nodes that the hop before discovered.
  void expand(std::uint64_t fanout, std::uint64_t hop_key) {
    const std::size_t first_edge = blocks_.edge_positions.size();
    const std::size_t num_known = blocks_.node_ids.size();
    measure_lists(fanout);
    draw_edges(hop_key, first_edge);
    number_sources(first_edge);
    num_expanded_ = num_known;
    blocks_.num_sampled_nodes.push_back(static_cast<std::int64_t>(blocks_.node_ids.size() - num_known));
    blocks_.num_sampled_edges.push_back(static_cast<std::int64_t>(blocks_.edge_positions.size() - first_edge));
  }

  SampledBlocks take() { return std::move(blocks_); }

 private:
  struct List {
    std::int64_t begin;
    std::int64_t degree;
  };

  /// Finds the frontier's lists and how many edges each gives.
  void measure_lists(std::uint64_t fanout) {
    const std::vector<std::int64_t>& nodes = blocks_.node_ids;
    const auto max_edges = static_cast<std::int64_t>(topology_.indices.size());
    lists_.clear();
    lists_.reserve(nodes.size() - num_expanded_);
    blocks_.indptr.reserve(nodes.size() + 1);
    const auto num_seeds = static_cast<std::uint64_t>(blocks_.num_sampled_nodes.front());
    std::int64_t num_edges = blocks_.indptr.back();
    for (std::size_t local = num_expanded_; local < nodes.size(); ++local) {
      if (local + nodes_ahead < nodes.size()) __builtin_prefetch(&topology_.indptr[nodes[local + nodes_ahead]]);
      const std::int64_t begin = topology_.indptr[nodes[local]];
      const std::int64_t end = topology_.indptr[nodes[local] + 1];
      if (begin < 0 || end < begin || end > max_edges) {
        throw std::out_of_range("topology is damaged: the list of node " + std::to_string(nodes[local]) + " is [" +
                                std::to_string(begin) + ", " + std::to_string(end) + ") of " +
                                std::to_string(max_edges) + " edges");
      }
      lists_.push_back({begin, end - begin});
      num_edges += static_cast<std::int64_t>(std::min(fanout, static_cast<std::uint64_t>(end - begin)));
      const auto num_reached = static_cast<std::uint64_t>(num_edges);  // an edge discovers one node at most
      if (num_reached > max_batch_nodes || std::min(num_nodes_, num_seeds + num_reached) > max_batch_nodes) {
        throw std::length_error("a batch has 2^31 edges or nodes or more: make the batch or the fan-outs smaller");
      }
      blocks_.indptr.push_back(num_edges);
    }
  }

  void draw_edges(std::uint64_t hop_key, std::size_t first_edge) {
    blocks_.edge_positions.resize(static_cast<std::size_t>(blocks_.indptr.back()));
    std::int64_t* picks = blocks_.edge_positions.data() + first_edge;
    for (std::size_t index = 0; index < lists_.size(); ++index) {
      const std::size_t local = num_expanded_ + index;
      const List list = lists_[index];
      const auto degree = static_cast<std::uint64_t>(list.degree);
      const auto count = static_cast<std::uint64_t>(blocks_.indptr[local + 1] - blocks_.indptr[local]);
      if (count == degree) {
        for (std::int64_t offset = 0; offset < list.degree; ++offset) picks[offset] = list.begin + offset;
      } else {
        const std::uint64_t key = absorb(hop_key, static_cast<std::uint64_t>(blocks_.node_ids[local]));
        if (degree < wide_draw_degree) {
          draw_positions(degree, count, list.begin, picks, [key](std::uint64_t number, std::uint64_t bound) {
            return scale32(draw32(key, static_cast<std::uint32_t>(number)), static_cast<std::uint32_t>(bound));
          });
        } else {
          draw_positions(degree, count, list.begin, picks, [key](std::uint64_t number, std::uint64_t bound) {
            return scale64(draw64(key, number), bound);
          });
        }
      }
      picks += count;
    }
  }

  /// Reads the drawn neighbours and numbers the new ones, as a pipeline: ask for the index, ask for its slot, use it.
  void number_sources(std::size_t first_edge) {
    const std::vector<std::int64_t>& positions = blocks_.edge_positions;
    const std::size_t num_edges = positions.size();
    const std::size_t num_new = num_edges - first_edge;
    local_ids_.reserve(std::min<std::size_t>(num_nodes_, blocks_.node_ids.size() + num_new), blocks_.node_ids);
    blocks_.sources.resize(num_edges);
    std::array<std::uint64_t, std::bit_ceil(slots_ahead + 1)> neighbors{};
    const auto fetch = [&](std::size_t edge) {
      if (edge >= num_edges) return;
      const auto node = static_cast<std::uint64_t>(topology_.indices[positions[edge]]);
      if (node >= num_nodes_) refuse_index(positions[edge]);
      __builtin_prefetch(local_ids_.home_slot(node), 1);
      neighbors[edge % neighbors.size()] = node;
    };
    // The prefetches stand in the loops themselves: GCC takes a function that only prefetches for one without effect.
    for (std::size_t edge = first_edge; edge < std::min(first_edge + edges_ahead, num_edges); ++edge) {
      __builtin_prefetch(&topology_.indices[positions[edge]]);
    }
    for (std::size_t edge = first_edge; edge < first_edge + slots_ahead; ++edge) fetch(edge);
    for (std::size_t edge = first_edge; edge < num_edges; ++edge) {
      if (edge + edges_ahead < num_edges) __builtin_prefetch(&topology_.indices[positions[edge + edges_ahead]]);
      fetch(edge + slots_ahead);
      blocks_.sources[edge] = local_ids_.number(neighbors[edge % neighbors.size()], blocks_.node_ids);
    }
  }

  /// Out of line: the loop that calls it runs for every edge.
  [[noreturn, gnu::noinline]] void refuse_index(std::int64_t position) const {
    throw std::out_of_range("topology is damaged: indices[" + std::to_string(position) + "] is " +
                            std::to_string(topology_.indices[position]) + ", the graph has " +
                            std::to_string(num_nodes_) + " nodes");
  }

  const Topology<Index>& topology_;
  std::uint64_t num_nodes_;
  LocalIds& local_ids_;
  SampledBlocks blocks_;
  std::vector<List> lists_;
  std::size_t num_expanded_ = 0;
};

}  // namespace

template <typename Index>
SampledBlocks sample_neighbors(const Topology<Index>& topology, std::span<const std::int64_t> seeds,
                               std::span<const std::int64_t> fanouts, const DrawKey& key) {
  if (topology.indptr.empty()) throw std::invalid_argument("indptr is empty: it has one element more than nodes");
  for (const std::int64_t fanout : fanouts) {
    if (fanout < -1 || fanout == 0) {
      throw std::invalid_argument("fan-out " + std::to_string(fanout) + " is neither positive nor -1 (all neighbours)");
    }
  }
  thread_local LocalIds local_ids;
  BatchSampler<Index> sampler(topology, local_ids);
  sampler.add_seeds(seeds);
  for (std::size_t hop = 0; hop < fanouts.size(); ++hop) {
    // -1 becomes the largest value: no list is longer.
    sampler.expand(static_cast<std::uint64_t>(fanouts[hop]), make_hop_key(key, hop, 0));
  }
  return sampler.take();
}

template SampledBlocks sample_neighbors<std::uint32_t>(const Topology<std::uint32_t>&, std::span<const std::int64_t>,
                                                       std::span<const std::int64_t>, const DrawKey&);
template SampledBlocks sample_neighbors<std::int64_t>(const Topology<std::int64_t>&, std::span<const std::int64_t>,
                                                      std::span<const std::int64_t>, const DrawKey&);

}  // namespace diskhop
