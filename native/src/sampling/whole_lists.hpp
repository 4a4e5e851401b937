// Whole lists of a batch's nodes, in pieces that bound the memory of reading them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/list_reader.hpp"
#include "sampling/lists.hpp"
#include "sampling/subgraph_nodes.hpp"

namespace diskhop {

/// Threading: one thread at a time.
template <typename Lists>
class WholeLists {
  using Index = typename Lists::Id;

 public:
  explicit WholeLists(const Lists& topology) : num_nodes_(topology.num_nodes()), reader_(topology) {}

  /// Starts to count the reads of a batch.
  void start() { reader_.start(); }
  [[nodiscard]] FoundList find(std::uint64_t number) const { return reader_.find(number); }
  [[nodiscard]] const ReadCounts& counts() const { return reader_.counts(); }

  /// Calls work(list, neighbours) for the lists of nodes begin .. end - 1 of a batch, in order. The batch may grow
  /// meanwhile. Throws std::out_of_range for damaged lists.
  template <typename Hop, typename Work>
  void for_each(const Hop& hop, const SubgraphNodes& nodes, std::size_t begin, std::size_t end, Work work) {
    while (begin < end) {
      lists_.clear();
      std::size_t num_edges = 0;
      for (; begin < end; ++begin) {
        const std::size_t num_lists = lists_.size();
        std::uint64_t num_more = 0;
        hop.for_each_list(nodes.node(begin), [&](std::uint64_t list, std::uint64_t fanout) {
          const FoundList found = reader_.find(list);
          lists_.push_back({found, begin, fanout});
          num_more += found.degree;
        });
        if (num_lists > 0 && num_edges + num_more > edges_per_piece) {
          lists_.resize(num_lists);
          break;
        }
        num_edges += num_more;
        if (num_edges > max_batch_nodes) refuse_batch_size();
      }
      most_edges_in_piece_ = std::max(most_edges_in_piece_, num_edges);
      reader_.read_whole(lists_, starts_);
      for (std::size_t place = 0; place < lists_.size(); ++place) {
        check_neighbors(lists_[place], starts_[place]);
        work(lists_[place], starts_[place]);
      }
    }
  }

  [[nodiscard]] std::size_t num_bytes() const {
    return lists_.capacity() * sizeof(ListOfNode) + starts_.capacity() * sizeof(starts_[0]);
  }
  /// More bytes, if no list is in memory.
  [[nodiscard]] std::size_t reading_bytes() const { return most_edges_in_piece_ * EdgeRequest::bytes_per_edge; }

 private:
  static constexpr std::size_t edges_per_piece = std::size_t{1} << 17;  // as VariantWorkspace

  void check_neighbors(const FoundList& list, const Index* neighbors) const {
    std::uint64_t largest = 0;
    for (std::uint64_t edge = 0; edge < list.degree; ++edge) {
      largest = std::max(largest, static_cast<std::uint64_t>(neighbors[edge]));
    }
    if (list.degree == 0 || largest < num_nodes_) return;
    for (std::uint64_t edge = 0; edge < list.degree; ++edge) {
      if (static_cast<std::uint64_t>(neighbors[edge]) >= num_nodes_) {
        refuse_index(list.begin + edge, neighbors[edge], num_nodes_);
      }
    }
  }

  std::uint64_t num_nodes_;
  ListReader<Lists> reader_;
  std::vector<ListOfNode> lists_;  // of one piece, as starts_
  std::vector<const Index*> starts_;
  std::size_t most_edges_in_piece_ = 0;
};

}  // namespace diskhop
