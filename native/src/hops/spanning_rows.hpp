// Rows whose lists span pieces: parts of their sums, added in the order of the pieces whoever is done first.
//
// A piece has at most two such parts: of a row that began before it (its *head*) and of one that goes on after it (its
// *tail*; a piece within one row has a head alone). Threading: none of its own; the caller's lock guards it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hops/pass_staging.hpp"

namespace diskhop {

class SpanningRows {
 public:
  /// Gets a row and its sum once that is complete.
  using Finish = std::function<void(std::uint64_t row, const float* sum)>;

  /// Pieces from first_piece on.
  SpanningRows(const PassStaging& staging, std::uint64_t num_columns, std::uint64_t first_piece, Finish finish);

  /// Edges of a piece are handed out, in the order of the edges; is_last: those at its end.
  void begin_part(std::uint64_t piece, bool is_last);
  /// Those were summed; heads and tails are in the piece's partial sums.
  void end_part(std::uint64_t piece);
  /// The piece has a head, summed. The row, where it ends within the piece.
  void end_head(std::uint64_t piece, bool ends, std::uint64_t row);
  void end_tail(std::uint64_t piece);
  /// Adds up what is there to be added. The first piece that is still needed.
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
  std::vector<float> sum_;  // of the row that the last piece added goes on with
};

}  // namespace diskhop
