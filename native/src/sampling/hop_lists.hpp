// Which lists a hop draws from, and how much: of each node one, or one of each edge type that ends at its type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "diskhop/sampling/graph_types.hpp"

namespace diskhop {

inline constexpr std::uint64_t all_neighbors = std::numeric_limits<std::uint64_t>::max();  // the fan-out -1

/// A hop over a graph of one type: the list of a node has the node's number. All loops over lists take a hop as a
/// template parameter, so that this case costs nothing.
struct UntypedHop {
  static constexpr std::size_t max_lists_per_node = 1;
  static constexpr bool has_many_empty = false;
  std::uint64_t fanout;

  /// Calls visit(list, fan-out) for the lists of a node, in order.
  template <typename Visit>
  void for_each_list(std::uint64_t node, Visit visit) const {
    visit(node, fanout);
  }
  /// Returns a function from list to fan-out, to be called with ascending lists.
  [[nodiscard]] auto ascending_fanouts() const {
    return [all = fanout](std::uint64_t) { return all; };
  }
};

/// A hop over a graph of several types. Lists of a fan-out of 0 are left out.
class TypedHop {
 public:
  /// fanouts: of each edge type; -1: all neighbours.
  TypedHop(const GraphTypes& types, std::span<const std::int64_t> fanouts) : types_(&types) {
    for (const std::int64_t fanout : fanouts) fanouts_.push_back(static_cast<std::uint64_t>(fanout));
    for (std::size_t node_type = 0; node_type < types.num_node_types(); ++node_type) {
      begins_.push_back(lists_.size());
      for (const GraphTypes::ListOfType& list : types.lists_of_type(node_type)) {
        if (fanouts_[list.edge_type] > 0) lists_.push_back({list.shift, fanouts_[list.edge_type]});
      }
      max_lists_per_node = std::max(max_lists_per_node, lists_.size() - begins_.back());
    }
    begins_.push_back(lists_.size());
  }

  static constexpr bool has_many_empty = true;
  std::size_t max_lists_per_node = 1;

  template <typename Visit>
  void for_each_list(std::uint64_t node, Visit visit) const {
    const std::size_t type = types_->type_of(node);
    for (std::size_t place = begins_[type]; place < begins_[type + 1]; ++place) {
      visit(node + static_cast<std::uint64_t>(lists_[place].shift), lists_[place].fanout);
    }
  }
  [[nodiscard]] auto ascending_fanouts() const {
    return [this, edge_type = std::size_t{0}](std::uint64_t list) mutable {
      while (list >= static_cast<std::uint64_t>(types_->list_starts()[edge_type + 1])) ++edge_type;
      return fanouts_[edge_type];
    };
  }

 private:
  struct VisitedList {
    std::int64_t shift;
    std::uint64_t fanout;
  };

  const GraphTypes* types_;
  std::vector<std::uint64_t> fanouts_;  // by edge type
  std::vector<VisitedList> lists_;      // by node type
  std::vector<std::size_t> begins_;     // of each node type in lists_
};

/// Fan-outs of all hops. Hops are as a sampler's fan-outs: one number per hop, or one per hop and edge type.
class Hops {
 public:
  Hops(const GraphTypes* types, std::span<const std::int64_t> fanouts) {
    const std::size_t num_types = types == nullptr ? 1 : types->num_edge_types();
    if (num_types == 0) {
      throw std::invalid_argument("the graph has no edge types");
    }
    if (fanouts.size() % num_types != 0) {
      throw std::invalid_argument(std::to_string(fanouts.size()) + " fan-outs are not the same number for each of " +
                                  std::to_string(num_types) + " edge types");
    }
    for (std::size_t first = 0; first < fanouts.size(); first += num_types) {
      if (types == nullptr) {
        // -1 becomes the largest value: no list is longer.
        untyped_.push_back({static_cast<std::uint64_t>(fanouts[first])});
      } else {
        typed_.emplace_back(*types, fanouts.subspan(first, num_types));
      }
    }
    if (types == nullptr) return;
    std::vector<std::int64_t> whole(num_types, 0);
    for (std::size_t place = 0; place < fanouts.size(); ++place) {
      if (fanouts[place] != 0) whole[place % num_types] = -1;
    }
    whole_.emplace(*types, whole);
  }

  [[nodiscard]] std::size_t size() const { return untyped_.size() + typed_.size(); }
  /// Calls work(hop) with the UntypedHop or TypedHop of a number.
  template <typename Work>
  void with_hop(std::size_t number, Work work) const {
    if (typed_.empty()) {
      work(untyped_[number]);
    } else {
      work(typed_[number]);
    }
  }
  /// Calls work(hop) with a hop that takes whole lists, of the edge types that any hop draws from.
  template <typename Work>
  void with_whole_lists(Work work) const {
    if (whole_) {
      work(*whole_);
    } else {
      work(UntypedHop{all_neighbors});
    }
  }

 private:
  std::vector<UntypedHop> untyped_;
  std::vector<TypedHop> typed_;
  std::optional<TypedHop> whole_;
};

}  // namespace diskhop
