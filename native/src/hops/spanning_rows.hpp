// Rows with lists that span pieces: their partial sums, added in the order of the pieces, whichever is computed first.
//
// A piece has at most two such parts: of a row that began before it (its *head*) and of a row that continues after it
// (its *tail*; a piece within one row has only a head). Threading: guarded by the caller's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hops/pass_staging.hpp"

namespace diskhop {

class SpanningRows {
 public:
  /// Receives a row and its complete sum.
  using Finish = std::function<void(std::uint64_t row, const float* sum)>;

  /// Starts with first_piece.
  SpanningRows(const PassStaging& staging, std::uint64_t num_columns, std::uint64_t first_piece, Finish finish);

  /// Records that edges of a piece were handed out, in order; is_last: up to its end.
  void begin_part(std::uint64_t piece, bool is_last);
  /// Records that they were summed; heads and tails are in the piece's partial sums.
  void end_part(std::uint64_t piece);
  /// Records that the piece's head is summed, and the row if it ends within the piece.
  void end_head(std::uint64_t piece, bool ends, std::uint64_t row);
  void end_tail(std::uint64_t piece);
  /// Adds up the available sums. Returns the first piece that is still needed.
  [[nodiscard]] std::uint64_t advance();

 private:
  struct Piece {
    std::uint64_t num_parts = 0;  // handed out and not ended
    bool is_handed_out = false;   // to its end
    bool has_head = false;
    bool head_ends = false;
    bool has_tail = false;
    std::uint64_t row = 0;
  };

  [[nodiscard]] Piece& at(std::uint64_t piece) { return pieces_[piece % pieces_.size()]; }
  void add_head(std::uint64_t number, Piece& piece);

  const PassStaging& staging_;
  std::uint64_t num_columns_;
  Finish finish_;
  std::uint64_t next_piece_;  // to be added
  std::vector<Piece> pieces_;
  std::vector<float> sum_;  // of the row that continues from the last piece added
};

}  // namespace diskhop
