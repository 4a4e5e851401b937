#include "hops/spanning_rows.hpp"

#include <algorithm>
#include <utility>

namespace diskhop {

SpanningRows::SpanningRows(const PassStaging& staging, std::uint64_t num_columns, std::uint64_t first_piece,
                           Finish finish)
    : staging_(staging),
      num_columns_(num_columns),
      finish_(std::move(finish)),
      next_piece_(first_piece),
      pieces_(staging.load_pieces() * staging.load_slots()),
      sum_(num_columns) {}

void SpanningRows::begin_part(std::uint64_t piece, bool is_last) {
  ++at(piece).num_parts;
  at(piece).is_handed_out = is_last;
}

void SpanningRows::end_part(std::uint64_t piece) { --at(piece).num_parts; }

void SpanningRows::end_head(std::uint64_t piece, bool ends, std::uint64_t row) {
  at(piece).has_head = true;
  at(piece).head_ends = ends;
  at(piece).row = row;
}

void SpanningRows::end_tail(std::uint64_t piece) { at(piece).has_tail = true; }

void SpanningRows::add_head(std::uint64_t number, Piece& piece) {
  const float* const head = staging_.partial_sums(number);
  for (std::uint64_t column = 0; column < num_columns_; ++column) sum_[column] += head[column];
  if (piece.head_ends) finish_(piece.row, sum_.data());
  piece.has_head = false;
}

std::uint64_t SpanningRows::advance() {
  while (true) {
    Piece& piece = at(next_piece_);
    // At once: the row's strip may have to be written before the rest of the piece can be handed out.
    if (piece.has_head) add_head(next_piece_, piece);
    if (!piece.is_handed_out || piece.num_parts > 0) return next_piece_;
    if (piece.has_tail) std::copy_n(staging_.partial_sums(next_piece_) + num_columns_, num_columns_, sum_.begin());
    piece = {};
    ++next_piece_;
  }
}

}  // namespace diskhop
