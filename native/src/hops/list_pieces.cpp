#include "hops/list_pieces.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace diskhop {
namespace {

constexpr auto edges_per_piece = static_cast<std::int64_t>(piece_edges);
// Far beyond any graph, and far enough below 2^63 for the arithmetic on runs and pieces.
constexpr std::int64_t most_edges = std::int64_t{1} << 62;

void check_lists(const StreamedLists& lists) {
  if (lists.indptr.empty()) throw std::invalid_argument("streamed lists: indptr must have a value more than rows");
  if (lists.index_bytes != 4 && lists.index_bytes != 8) {
    throw std::invalid_argument("streamed lists: indices have 4 or 8 bytes");
  }
  if (lists.first_edge < 0 || lists.num_edges < 0 ||
      lists.first_edge > most_edges - std::min(lists.num_edges, most_edges)) {
    throw std::invalid_argument("streamed lists: numbers of edges must be from 0 to 2^62");
  }
  bool ascends = lists.indptr.front() >= 0;
  for (std::size_t row = 0; row < lists.num_rows(); ++row) ascends &= lists.indptr[row] <= lists.indptr[row + 1];
  if (!ascends) {
    throw DamagedListsError("topology is damaged: the lists of " + std::to_string(lists.num_rows()) +
                            " rows, from edge " + std::to_string(lists.indptr.front()) +
                            " on, do not follow each other");
  }
}

}  // namespace

ListPieces::ListPieces(const StreamedLists& lists, std::uint64_t num_sources, InstructionSet instructions)
    : lists_(lists), num_sources_(num_sources), instructions_(instructions) {
  check_lists(lists);
  begin_edge_ = std::max(lists.first_edge, lists.indptr.front());
  end_edge_ = std::min(lists.first_edge + lists.num_edges, lists.indptr.back());
  if (begin_edge_ >= end_edge_) return;
  num_turns_ = static_cast<std::size_t>((end_edge_ - 1) / edges_per_piece - begin_edge_ / edges_per_piece + 1);
  pad_last_turns();
}

std::size_t ListPieces::num_lanes(unsigned num_threads) const noexcept {
  return std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(num_turns_, 1));
}

std::int64_t ListPieces::first_edge_of(std::size_t number) const {
  if (number == num_turns_) return end_edge_;
  const std::int64_t piece = begin_edge_ / edges_per_piece + static_cast<std::int64_t>(number);
  return std::max(begin_edge_, piece * edges_per_piece);
}

PieceTurn ListPieces::turn(std::size_t number) const {
  const std::span<const std::int64_t> begins = lists_.indptr.first(lists_.num_rows());
  const std::span<const std::int64_t> ends = lists_.indptr.last(lists_.num_rows());
  PieceTurn turn{.number = number, .first_edge = first_edge_of(number), .end_edge = first_edge_of(number + 1)};
  turn.begin_row = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), turn.first_edge) - ends.begin());
  turn.end_row =
      static_cast<std::size_t>(std::lower_bound(begins.begin(), begins.end(), turn.end_edge) - begins.begin());
  turn.has_head = number > 0 && begins[turn.begin_row] < turn.first_edge;
  const bool is_padded = turn.first_edge >= first_padded_;
  turn.indices = (is_padded ? padded_.data() : lists_.indices) +
                 (turn.first_edge - (is_padded ? first_padded_ : lists_.first_edge)) * lists_.index_bytes;
  return turn;
}

/// Copies the turns from which indices beyond those in memory would be read.
void ListPieces::pad_last_turns() {
  constexpr auto edges_ahead = static_cast<std::int64_t>(most_edges_ahead);
  std::size_t first = num_turns_ - 1;
  if (first > 0 && end_edge_ - first_edge_of(first) < edges_ahead) --first;
  first_padded_ = first_edge_of(first);
  const auto copied_bytes = static_cast<std::size_t>(end_edge_ - first_padded_) * lists_.index_bytes;
  padded_.resize(copied_bytes + most_edges_ahead * lists_.index_bytes);
  std::memcpy(padded_.data(), lists_.indices + (first_padded_ - lists_.first_edge) * lists_.index_bytes, copied_bytes);
}

bool ListPieces::check_sources(const PieceTurn& turn) {
  const ListPart part{.indices = turn.indices,
                      .index_bytes = lists_.index_bytes,
                      .first_edge = turn.first_edge,
                      .end_edge = turn.end_edge};
  if (largest_index(part, instructions_) < num_sources_) return true;
  // Relaxed: read after all threads have ended, or as a hint.
  std::size_t first = first_damaged_.load(std::memory_order_relaxed);
  while (turn.number < first && !first_damaged_.compare_exchange_weak(first, turn.number, std::memory_order_relaxed)) {
  }
  return false;
}

void ListPieces::throw_if_damaged() const {
  const std::size_t number = first_damaged_.load(std::memory_order_relaxed);
  if (number >= num_turns_) return;
  const PieceTurn damaged = turn(number);
  const ListPart part{.indices = damaged.indices,
                      .index_bytes = lists_.index_bytes,
                      .first_edge = damaged.first_edge,
                      .end_edge = damaged.end_edge};
  const std::uint64_t largest = largest_index(part, instructions_);
  throw DamagedListsError("topology is damaged: one of edges " + std::to_string(damaged.first_edge) + " to " +
                          std::to_string(damaged.end_edge - 1) + " comes from node " +
                          std::to_string(static_cast<std::int64_t>(largest)) + ", must be less than " +
                          std::to_string(num_sources_));
}

}  // namespace diskhop
