// Excluded negatives: which of a chunk's negatives do not count for which of its edges.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "diskhop/embedding/embedding.hpp"

namespace diskhop {

/// Hash table from nodes to their columns among the negatives, with open addressing.
class NegativePlaces {
 public:
  explicit NegativePlaces(std::span<const std::int64_t> nodes)
      : nodes_(nodes),
        shift_(64 - static_cast<int>(std::bit_width(2 * nodes.size() - 1))),
        places_(std::size_t{1} << (64 - shift_), none) {
    for (std::size_t column = 0; column < nodes.size(); ++column) {
      std::size_t place = first_place(nodes[column]);
      while (places_[place] != none) place = after(place);
      places_[place] = static_cast<std::uint32_t>(column);
    }
  }

  /// Calls visit(column) for every negative that is this node.
  template <typename Visit>
  void visit(std::int64_t node, const Visit& visit) const {
    for (std::size_t place = first_place(node); places_[place] != none; place = after(place)) {
      if (nodes_[places_[place]] == node) visit(places_[place]);
    }
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  [[nodiscard]] std::size_t first_place(std::int64_t node) const {
    return (static_cast<std::uint64_t>(node) * 0x9e3779b97f4a7c15U) >> shift_;
  }
  [[nodiscard]] std::size_t after(std::size_t place) const { return (place + 1) & (places_.size() - 1); }

  std::span<const std::int64_t> nodes_;
  int shift_;
  std::vector<std::uint32_t> places_;
};

/// Excluded columns per edge. The spans must outlive it. Throws std::invalid_argument if sizes do not match.
class LeftOutColumns {
 public:
  LeftOutColumns(const LeftOut& left_out, std::size_t num_edges, std::size_t num_negatives)
      : left_out_(checked(left_out, num_edges, num_negatives)), places_(left_out.negatives) {}

  /// Sets the scores of excluded negatives to -inf; the first row of scores is that of edge first_edge.
  void mask(std::size_t first_edge, const Matrix<float>& scores) const {
    for (std::size_t row = 0; row < scores.num_rows; ++row) {
      visit(first_edge + row, [&](std::size_t column) {
        scores.data[row * scores.stride + column] = -std::numeric_limits<float>::infinity();
      });
    }
  }

 private:
  static const LeftOut& checked(const LeftOut& left_out, std::size_t num_edges, std::size_t num_negatives) {
    const std::size_t num_ranges = left_out.begins.size();
    bool fits = left_out.answers.size() == num_edges && left_out.negatives.size() == num_negatives &&
                num_negatives > 0 && num_negatives < std::numeric_limits<std::uint32_t>::max() &&
                left_out.ends.size() == num_ranges && (num_ranges == 0 || num_ranges == num_edges);
    for (std::size_t edge = 0; fits && edge < num_ranges; ++edge) {
      const std::int64_t end = left_out.ends[edge];
      fits = 0 <= left_out.begins[edge] && left_out.begins[edge] <= end &&
             static_cast<std::size_t>(end) <= left_out.known.size();
    }
    if (!fits) throw std::invalid_argument("edges, negatives and nodes that are left out must fit each other");
    return left_out;
  }

  /// Calls visit(column), at least once, for every negative that is excluded for an edge.
  template <typename Visit>
  void visit(std::size_t edge, const Visit& visit) const {
    places_.visit(left_out_.answers[edge], visit);
    if (left_out_.begins.empty()) return;
    const auto begin = static_cast<std::size_t>(left_out_.begins[edge]);
    const auto known = left_out_.known.subspan(begin, static_cast<std::size_t>(left_out_.ends[edge]) - begin);
    // A hub may have more known nodes than there are negatives.
    if (known.size() <= left_out_.negatives.size()) {
      for (const std::int64_t node : known) places_.visit(node, visit);
      return;
    }
    for (std::size_t column = 0; column < left_out_.negatives.size(); ++column) {
      if (std::ranges::binary_search(known, left_out_.negatives[column])) visit(column);
    }
  }

  LeftOut left_out_;
  NegativePlaces places_;
};

}  // namespace diskhop
