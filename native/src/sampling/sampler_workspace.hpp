// Workspace of one batch: draws, drawn neighbours, and their local ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "diskhop/sampling/sampler.hpp"
#include "sampling/draws.hpp"
#include "sampling/growing_array.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/lists.hpp"
#include "sampling/local_ids.hpp"
#include "sampling/missing_neighbors.hpp"

namespace diskhop {

// Distances of the software pipeline, measured. indptr is prefetched one step of lists ahead; neighbours, and then
// their local ids, this many edges ahead. Lists are drawn from one by one in between: mixing arithmetic and waiting is
// a quarter faster than drawing a whole step at once.
inline constexpr std::size_t lists_per_step = 32;
inline constexpr std::size_t edges_behind = 128;
inline constexpr std::size_t edges_a_step = 16;
inline constexpr std::size_t array_alignment = 64;
// Edges numbered at once where a hop is numbered after all of it was read; bounds the space reserved for new nodes.
inline constexpr std::size_t edges_per_chunk = 4096;

/// Samples one batch at a time; keeps its memory for the next. Lists: Topology or CachedTopology. Word: see
/// NeighborList. Threading: one thread at a time.
template <typename Lists, typename Word, typename LocalIds>
class Workspace {
  using Index = typename Lists::Id;

 public:
  Workspace(const Lists& topology, LocalIds local_ids)
      : topology_(topology), num_nodes_(topology.num_nodes()), local_ids_(std::move(local_ids)) {}

  void start(std::span<const std::int64_t> seeds) {
    if (seeds.size() > max_batch_nodes) throw std::length_error("a batch has at most 2^31 - 1 seeds");
    local_ids_.next_batch();
    num_expanded_ = num_edges_ = num_read_ = num_numbered_ = 0;
    num_sampled_nodes_.clear();
    num_sampled_edges_.clear();
    read_counts_ = {};
    reserve_nodes(seeds.size());
    for (std::size_t place = 0; place < seeds.size(); ++place) {
      const auto node = static_cast<std::uint64_t>(seeds[place]);
      if (node >= num_nodes_) refuse_seed(seeds[place], num_nodes_);
      auto entry = static_cast<Word>(node);
      local_ids_.number({&entry, 1}, node_ids_.data());
      if (entry != place) refuse_repeated_seed(seeds[place]);
    }
    list_ends_.reserve(1, 0);
    list_ends_[0] = 0;
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(seeds.size()));
  }

  /// Expands the nodes that the previous hop discovered. Hop: UntypedHop or TypedHop.
  template <typename Hop>
  void expand(const Hop& hop, std::uint64_t hop_key) {
    const std::size_t nodes_per_step = std::max<std::size_t>(1, lists_per_step / hop.max_lists_per_node);
    step_lists_.resize(std::max(step_lists_.size(), nodes_per_step * hop.max_lists_per_node));
    const std::size_t num_known = local_ids_.num_nodes();
    const std::size_t first_edge = num_edges_;
    num_hop_lists_ = 0;
    list_ends_.reserve(num_known + 1, num_expanded_ + 1);
    prefetch_lists(hop, num_expanded_, std::min(num_expanded_ + nodes_per_step, num_known));
    while (num_expanded_ < num_known) {
      const std::size_t end = std::min(num_expanded_ + nodes_per_step, num_known);
      prefetch_lists(hop, end, std::min(end + nodes_per_step, num_known));
      expand_lists(end, hop, hop_key);
    }
    if constexpr (is_cached<Lists>) {
      read_missing(hop, hop_key);
    } else {
      follow_edges(0);
    }
    num_sampled_nodes_.push_back(static_cast<std::int64_t>(local_ids_.num_nodes() - num_known));
    num_sampled_edges_.push_back(static_cast<std::int64_t>(num_edges_ - first_edge));
    most_reading_bytes_ = std::max(most_reading_bytes_, hop_read_bytes(num_hop_lists_, num_edges_ - first_edge));
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
    blocks.read_counts = read_counts_;
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

  /// More bytes, if none of the lists so far had been cached.
  [[nodiscard]] std::size_t reading_bytes() const { return most_reading_bytes_; }

  /// Without those of reading lists.
  [[nodiscard]] std::size_t num_bytes() const {
    return local_ids_.num_bytes() + node_ids_.num_bytes() + list_ends_.num_bytes() + positions_.num_bytes() +
           neighbors_.num_bytes() + step_lists_.capacity() * sizeof(StepList);
  }

 private:
  template <typename From, typename To>
  static void copy(const From* from, std::span<To> to) {
    std::transform(from, from + to.size(), to.data(), [](From value) { return static_cast<To>(value); });
  }

  /// Reserves memory for this many edges in total.
  void reserve_edges(std::size_t num_edges) {
    positions_.reserve(num_edges + max_draw_overrun, num_edges_);
    neighbors_.reserve(num_edges, is_cached<Lists> ? num_edges_ : num_read_);
    if constexpr (is_cached<Lists>) read_neighbors_.reserve(num_edges - num_numbered_, num_read_ - num_numbered_);
  }

  /// Reserves memory for this many new nodes.
  void reserve_nodes(std::size_t num_new) {
    const std::size_t num_known = local_ids_.num_nodes();
    const std::size_t max_nodes = std::min<std::size_t>(num_nodes_, num_known + num_new);
    node_ids_.reserve(max_nodes + 1, num_known);  // one more value is written
    local_ids_.reserve(max_nodes, node_ids_.data());
  }

  template <typename Hop>
  void prefetch_lists(const Hop& hop, std::size_t begin, std::size_t end) {
    for (std::size_t local = begin; local < end; ++local) {
      hop.for_each_list(node_ids_[local], [this](std::uint64_t list, std::uint64_t /*fanout*/) {
        __builtin_prefetch(&topology_.indptr[list]);
        if constexpr (is_cached<Lists>) {
          __builtin_prefetch(&topology_.blocks[list / lists_per_block]);
          __builtin_prefetch(&topology_.indptr[list / lists_per_block * lists_per_block]);
        }
      });
    }
  }

  /// Draws from the lists of the next nodes, up to `end`, and prefetches the neighbours.
  template <typename Hop>
  void expand_lists(std::size_t end, const Hop& hop, std::uint64_t hop_key) {
    const std::size_t num_lists = find_lists(end, hop);
    // Plain topologies discover nodes here; a cached topology numbers the hop once all of it is read.
    if constexpr (!is_cached<Lists>) reserve_nodes(list_ends_[end] - num_numbered_);
    for (std::size_t place = 0; place < num_lists; ++place) {
      const auto& [list, fanout] = step_lists_[place];
      const std::size_t count = std::min<std::uint64_t>(fanout, list.degree);
      if constexpr (is_cached<Lists>) {
        find_neighbors(list, fanout, hop_key, count);
        num_edges_ += count;
        copy_cached(edges_behind);
      } else {
        Word* const positions = positions_.data() + num_edges_;
        draw_list(list, fanout, hop_key, positions);
        for (std::size_t edge = 0; edge < count; ++edge) __builtin_prefetch(&topology_.indices[positions[edge]]);
        num_edges_ += count;
        follow_edges(edges_behind);
      }
    }
    num_hop_lists_ += num_lists;
    num_expanded_ = end;
  }

  /// Finds the lists of the next nodes, up to `end`, and where the edges of each node end. Returns their number.
  template <typename Hop>
  std::size_t find_lists(std::size_t end, const Hop& hop) {
    const auto max_edges = static_cast<std::int64_t>(topology_.num_edges());
    const std::int64_t* const indptr = topology_.indptr.data();
    const auto num_seeds = static_cast<std::uint64_t>(num_sampled_nodes_.front());
    StepList* next = step_lists_.data();
    std::uint64_t num_edges = num_edges_;
    for (std::size_t local = num_expanded_; local < end; ++local) {
      hop.for_each_list(node_ids_[local], [&](std::uint64_t list, std::uint64_t fanout) {
        const std::int64_t list_begin = indptr[list];
        const std::int64_t list_end = indptr[list + 1];
        if (list_begin < 0 || list_end < list_begin || list_end > max_edges) refuse_list(topology_, list);
        const auto degree = static_cast<Word>(list_end - list_begin);
        *next = {{static_cast<Word>(list), static_cast<Word>(list_begin), degree}, fanout};
        // No branch on empty lists, which are frequent where a node has several.
        next += Hop::has_many_empty && degree == 0 ? 0 : 1;
        num_edges += std::min<std::uint64_t>(fanout, degree);  // no overflow: at most max_batch_nodes and one list
        if (num_edges > max_batch_nodes || std::min(num_nodes_, num_seeds + num_edges) > max_batch_nodes) {
          refuse_batch_size();
        }
      });
      list_ends_[local + 1] = static_cast<std::uint32_t>(num_edges);
    }
    reserve_edges(num_edges);
    return static_cast<std::size_t>(next - step_lists_.data());
  }

  /// Reads the neighbours of drawn edges and prefetches their local ids, then numbers neighbours read before. Both
  /// leave the last `num_behind` edges, which are in flight from memory, for later.
  void follow_edges(std::size_t num_behind) {
    const Word* const positions = positions_.data();
    Word* const neighbors = neighbors_.data();
    while (num_read_ + num_behind < num_edges_) {
      const std::size_t step_end = std::min(num_edges_ - num_behind, num_read_ + edges_a_step);
      for (std::size_t edge = num_read_; edge < step_end; ++edge) {
        const auto node = static_cast<std::uint64_t>(topology_.indices[positions[edge]]);
        if (node >= num_nodes_) refuse_index(positions[edge], topology_.indices[positions[edge]], num_nodes_);
        __builtin_prefetch(local_ids_.place_of(static_cast<Word>(node)), 1);
        neighbors[edge] = static_cast<Word>(node);
      }
      num_read_ = step_end;
      number_neighbors(num_read_ - std::min(num_behind, num_read_ - num_numbered_));
    }
    if (num_behind == 0) number_neighbors(num_read_);
  }

  /// Draws from a cached list: until its neighbour is copied, an edge has its position among the cached lists. An
  /// uncached list is drawn from once all of them are known; until then the first position stands for all.
  void find_neighbors(const NeighborList<Word>& list, std::uint64_t fanout, std::uint64_t hop_key, std::size_t count) {
    Word* const places = neighbors_.data() + num_edges_;
    if (!is_list_cached(topology_, list.number)) {
      missing_.add(list.number, num_edges_, count);
      std::fill_n(places, count, Word{0});
      return;
    }
    Word* const positions = positions_.data() + num_edges_;
    draw_list(list, fanout, hop_key, positions);
    const std::uint64_t begin = find_cached_list(topology_, list.number);
    if (begin > topology_.lists.size() || topology_.lists.size() - begin < list.degree)
      refuse_list(topology_, list.number);
    for (std::size_t edge = 0; edge < count; ++edge) {
      places[edge] = static_cast<Word>(begin + (positions[edge] - list.begin));
      __builtin_prefetch(&topology_.lists[places[edge]]);
    }
  }

  /// Copies cached neighbours, except those of the last `num_behind` edges, which are in flight from memory.
  void copy_cached(std::size_t num_behind) {
    for (; num_read_ + num_behind < num_edges_; ++num_read_) {
      read_neighbors_[num_read_ - num_numbered_] = topology_.lists[neighbors_[num_read_]];
    }
  }

  /// Reads the hop's uncached neighbours into their placeholders, then numbers all neighbours of the hop.
  template <typename Hop>
  void read_missing(const Hop& hop, std::uint64_t hop_key) {
    copy_cached(0);
    const std::size_t hop_begin = num_numbered_;
    const ReadCounts counts =
        missing_.read(topology_, hop, hop_key, hop_begin, positions_.data(), read_neighbors_.data());
    read_counts_.reads += counts.reads;
    read_counts_.bytes_read += counts.bytes_read;
    read_counts_.bytes_copied += counts.bytes_copied;
    std::size_t num_prefetched = hop_begin;
    while (num_numbered_ < num_edges_) {
      const std::size_t chunk_end = std::min(num_numbered_ + edges_per_chunk, num_edges_);
      reserve_nodes(chunk_end - num_numbered_);
      while (num_numbered_ < chunk_end) {
        const std::size_t step_end = std::min(num_numbered_ + edges_a_step, chunk_end);
        for (; num_prefetched < std::min(step_end + edges_behind, num_edges_); ++num_prefetched) {
          set_neighbor(num_prefetched, read_neighbors_[num_prefetched - hop_begin]);
          __builtin_prefetch(local_ids_.place_of(neighbors_[num_prefetched]), 1);
        }
        number_neighbors(step_end);
      }
    }
  }

  template <typename Value>
  void set_neighbor(std::size_t edge, Value value) {
    if (static_cast<std::uint64_t>(value) >= num_nodes_) refuse_index(positions_[edge], value, num_nodes_);
    neighbors_[edge] = static_cast<Word>(value);
  }

  void number_neighbors(std::size_t end) {
    local_ids_.number({neighbors_.data() + num_numbered_, end - num_numbered_}, node_ids_.data());
    num_numbered_ = end;
  }

  struct StepList {
    NeighborList<Word> list;
    std::uint64_t fanout;
  };

  const Lists& topology_;
  std::uint64_t num_nodes_;
  LocalIds local_ids_;
  GrowingArray<Word> node_ids_;
  GrowingArray<std::uint32_t> list_ends_;  // of node i: list_ends_[i + 1]
  GrowingArray<Word> positions_;
  GrowingArray<Word> neighbors_;        // node ids up to num_read_, local ids up to num_numbered_
  GrowingArray<Index> read_neighbors_;  // neighbours of a hop of a cached topology
  MissingNeighbors<Index, Word> missing_;
  std::vector<StepList> step_lists_;
  std::size_t num_expanded_ = 0;
  std::size_t num_hop_lists_ = 0;
  std::size_t num_edges_ = 0;
  std::size_t num_read_ = 0;
  std::size_t num_numbered_ = 0;
  std::vector<std::int64_t> num_sampled_nodes_;
  std::vector<std::int64_t> num_sampled_edges_;
  ReadCounts read_counts_;
  std::size_t most_reading_bytes_ = 0;
};

}  // namespace diskhop
