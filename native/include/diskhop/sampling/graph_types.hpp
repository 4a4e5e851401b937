// Types of nodes and edges of a graph, as ranges of one numbering of all nodes and one of all lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace diskhop {

/// Nodes of type t are node_starts[t] .. node_starts[t + 1] - 1. Edge type e has a list for each node of its
/// destination's type: list_starts[e] + the node's number in its type. `indices` has numbers of all nodes.
/// Immutable: any number of threads.
class GraphTypes {
 public:
  /// A list of every node of one type: node + shift.
  struct ListOfType {
    std::size_t edge_type;
    std::int64_t shift;
  };

  /// node_starts: node types + 1. list_starts: edge types + 1. destinations: node type of each edge type.
  /// Throws std::invalid_argument for starts that do not begin with 0 or descend, and for edge types whose lists are
  /// not one per node of their destination.
  GraphTypes(std::vector<std::int64_t> node_starts, std::vector<std::int64_t> list_starts,
             std::vector<std::int64_t> destinations);

  [[nodiscard]] std::uint64_t num_nodes() const { return static_cast<std::uint64_t>(node_starts_.back()); }
  [[nodiscard]] std::uint64_t num_lists() const { return static_cast<std::uint64_t>(list_starts_.back()); }
  [[nodiscard]] std::size_t num_node_types() const { return node_starts_.size() - 1; }
  [[nodiscard]] std::size_t num_edge_types() const { return list_starts_.size() - 1; }
  [[nodiscard]] std::span<const std::int64_t> node_starts() const { return node_starts_; }
  [[nodiscard]] std::span<const std::int64_t> list_starts() const { return list_starts_; }
  /// The lists of each node of a type, in the order of the edge types.
  [[nodiscard]] std::span<const ListOfType> lists_of_type(std::size_t node_type) const { return lists_[node_type]; }

  [[nodiscard]] std::size_t type_of(std::uint64_t node) const {
    // A few types are counted without a branch; more are searched.
    if (num_node_types() > max_counted_types) return search_type(node);
    std::size_t type = 0;
    for (std::size_t next = 1; next < num_node_types(); ++next) {
      type += node >= static_cast<std::uint64_t>(node_starts_[next]) ? 1 : 0;
    }
    return type;
  }

 private:
  static constexpr std::size_t max_counted_types = 16;

  [[nodiscard]] std::size_t search_type(std::uint64_t node) const;

  std::vector<std::int64_t> node_starts_;
  std::vector<std::int64_t> list_starts_;
  std::vector<std::vector<ListOfType>> lists_;  // by node type
};

}  // namespace diskhop
