// Part of the rows of a pass, while strips and loads pass through: the next turn, its computation, and what it
// releases.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "diskhop/hops/prefetch_distance.hpp"
#include "hops/bad_rows.hpp"
#include "hops/cold_edges.hpp"
#include "hops/finish_rows.hpp"
#include "hops/pass_staging.hpp"
#include "hops/slot_ring.hpp"
#include "hops/spanning_rows.hpp"

namespace diskhop {

/// Parameters and totals shared by all stretches of a pass.
struct PassWork {
  const ListFiles& lists;
  const PassFormula& formula;
  const TableColumns& out;
  RowFormula row_formula;
  const std::optional<ColdEdges>& cold;
  // Added to in any order, read after all threads have ended.
  std::atomic<std::uint64_t> written_sum = 0;
  std::atomic<std::uint64_t> num_sources = 0;
  BadRows bad_rows;
  PrefetchDistance edges_ahead;
};

/// Rows [first_row, end_row) and all their edges, [first_edge, end_edge). first_row is the first of a group.
struct RowRange {
  std::uint64_t first_row = 0;
  std::uint64_t end_row = 0;
  std::uint64_t first_edge = 0;
  std::uint64_t end_edge = 0;
};

/// Work of a thread at a time: rows of one strip and edges of one piece.
struct Turn {
  std::uint64_t strip = 0;
  std::uint64_t begin_row = 0;
  std::uint64_t end_row = 0;  // the first and the last row may have only some of their edges in this turn
  std::uint64_t first_edge = 0;
  std::uint64_t end_edge = 0;
  bool has_head = false;  // the first row began in an earlier piece
  bool has_tail = false;  // the last row continues in a later piece

  [[nodiscard]] bool has_edges() const noexcept { return end_edge > first_edge; }
  [[nodiscard]] std::uint64_t piece() const noexcept { return first_edge / piece_edges; }
  [[nodiscard]] bool is_within_one_row() const noexcept { return has_head && has_tail && end_row - begin_row == 1; }
};

/// Computes a range of rows. Threading: turns are handed out in the order of the files, to one thread at a time; any
/// thread executes them.
class PassStretch {
 public:
  /// streaming: its staging belongs to this stretch alone. The window for cold edges is part `number` of num_parts.
  PassStretch(const Streaming& streaming, PassWork& work, const RowRange& range, std::uint64_t number,
              std::uint64_t num_parts);

  // One thread at a time:
  [[nodiscard]] bool is_over() const noexcept { return next_strip_ == end_strip_; }
  /// Whether hand_out() would return without waiting.
  [[nodiscard]] bool is_ready();
  /// Hands out the next turn, with its rows and edges in memory. Returns false if there is none, or after stop().
  [[nodiscard]] bool hand_out(Turn& turn);

  // Any thread. lane: the thread's number.
  void carry_out(const Turn& turn, std::uint64_t lane);

  void stop() noexcept;
  /// Waits for all writes, after all threads have ended. Returns the bytes read and the time spent waiting.
  [[nodiscard]] StreamCounts finish();

 private:
  struct Strip {
    StripRows rows;
    std::uint64_t num_open = 0;  // turns, and rows that span pieces, that have not ended
    bool is_handed_out = false;  // to its end
  };

  // Reading.
  [[nodiscard]] std::uint64_t rows_of(std::uint64_t strip) const;
  [[nodiscard]] std::uint64_t edges_of(std::uint64_t load) const;
  [[nodiscard]] AlignedRead indptr_read(std::uint64_t strip, std::uint64_t slot) const;
  [[nodiscard]] AlignedRead scales_read(std::uint64_t strip, std::uint64_t slot) const;
  [[nodiscard]] AlignedRead load_read(std::uint64_t load, std::uint64_t slot) const;
  [[nodiscard]] AlignedRead weights_read(std::uint64_t load, std::uint64_t slot) const;
  [[nodiscard]] std::vector<Op> load_reads(std::uint64_t load, std::uint64_t slot) const;
  [[nodiscard]] std::vector<Op> strip_reads(std::uint64_t strip, std::uint64_t slot) const;
  [[nodiscard]] std::uint64_t num_tiles() const { return work_.row_formula.block.num_columns / tile_columns; }

  // One thread at a time.
  [[nodiscard]] bool take_rows(Turn& turn, std::uint64_t limit);
  void begin_load(std::uint64_t load);
  void begin_strip();
  void check_indptr(const StripRows& rows, std::uint64_t num_rows) const;
  void note_begun(const Turn& turn, bool is_strip_over, bool is_piece_over);

  // All threads.
  void sum_rows(const Turn& turn, float* scratch);
  [[nodiscard]] const std::byte* indices_of(const Turn& turn) const;
  [[nodiscard]] const float* weights_of(const Turn& turn) const;  // null without weights
  void check_source(std::uint64_t largest, std::uint64_t num_sources, std::uint64_t first_edge, std::uint64_t end_edge);
  void note_source(std::uint64_t largest);
  void end(const Turn& turn);
  [[nodiscard]] std::uint64_t loads_before(std::uint64_t piece) const;

  // Under the lock.
  void finish_spanning(std::uint64_t row, const float* sum);
  void close_one(std::uint64_t number);

  PassWork& work_;
  const ListFiles& lists_;
  InstructionSet instructions_;
  ColdWindow window_;
  PassStaging staging_;
  std::uint64_t load_edges_;
  std::uint64_t end_strip_;
  std::uint64_t end_edge_;

  std::uint64_t next_strip_;  // from here on: used by one thread at a time
  std::uint64_t next_row_;
  std::uint64_t next_edge_;
  std::uint64_t next_load_;  // to be checked
  bool is_strip_begun_ = false;

  std::mutex mutex_;           // guards the members below, except rows of strips that were begun
  std::vector<Strip> strips_;  // by slot
  std::vector<std::uint64_t> strips_done_;
  SpanningRows spanning_;
  std::uint64_t next_released_;  // number of a load

  SlotRing strip_ring_;  // last: their destructors wait for transfers in flight
  SlotRing load_ring_;
};

}  // namespace diskhop
