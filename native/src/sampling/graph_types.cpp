#include "diskhop/sampling/graph_types.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace diskhop {
namespace {

void require_starts(const std::vector<std::int64_t>& starts, const char* what) {
  if (starts.empty() || starts.front() != 0 || !std::ranges::is_sorted(starts)) {
    throw std::invalid_argument(std::string("starts of ") + what + " must ascend from 0");
  }
}

}  // namespace

GraphTypes::GraphTypes(std::vector<std::int64_t> node_starts, std::vector<std::int64_t> list_starts,
                       std::vector<std::int64_t> destinations)
    : node_starts_(std::move(node_starts)), list_starts_(std::move(list_starts)) {
  require_starts(node_starts_, "node types");
  require_starts(list_starts_, "edge types");
  if (destinations.size() != num_edge_types()) {
    throw std::invalid_argument("there are " + std::to_string(num_edge_types()) + " edge types and " +
                                std::to_string(destinations.size()) + " destinations");
  }
  lists_.resize(num_node_types());
  for (std::size_t edge_type = 0; edge_type < num_edge_types(); ++edge_type) {
    const std::int64_t destination = destinations[edge_type];
    const auto num_types = static_cast<std::int64_t>(num_node_types());
    if (destination < 0 || destination >= num_types ||
        list_starts_[edge_type + 1] - list_starts_[edge_type] !=
            node_starts_[destination + 1] - node_starts_[destination]) {
      throw std::invalid_argument("edge type " + std::to_string(edge_type) +
                                  " needs one list per node of its destination, node type " +
                                  std::to_string(destination) + " of " + std::to_string(num_types));
    }
    lists_[destination].push_back({edge_type, list_starts_[edge_type] - node_starts_[destination]});
  }
}

std::size_t GraphTypes::search_type(std::uint64_t node) const {
  // Several types may start at one node, all but the last without nodes.
  const auto next = std::upper_bound(node_starts_.begin(), node_starts_.end() - 1, static_cast<std::int64_t>(node));
  return static_cast<std::size_t>(next - node_starts_.begin()) - 1;
}

}  // namespace diskhop
