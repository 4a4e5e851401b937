#include "diskhop/propagate.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "cold_edges.hpp"
#include "diskhop/content_sum.hpp"
#include "finish_rows.hpp"
#include "neighbor_sums.hpp"
#include "pass_staging.hpp"
#include "spanning_rows.hpp"

namespace diskhop {
namespace {

/// What a thread does at a time: rows of one strip and edges of one piece.
struct Turn {
  std::uint64_t strip = 0;
  std::uint64_t begin_row = 0;
  std::uint64_t end_row = 0;  // the first and the last may have only some of their edges here
  std::uint64_t first_edge = 0;
  std::uint64_t end_edge = 0;
  bool has_head = false;  // the first row began in an earlier piece
  bool has_tail = false;  // the last row goes on in a later one

  [[nodiscard]] bool has_edges() const noexcept { return end_edge > first_edge; }
  [[nodiscard]] std::uint64_t piece() const noexcept { return first_edge / piece_edges; }
  [[nodiscard]] bool is_within_one_row() const noexcept { return has_head && has_tail && end_row - begin_row == 1; }
};

/// Lists and rows in the order of the files. Turns are handed out one at a time; any thread does them.
class Pass {
 public:
  Pass(const Streaming& streaming, const ListFiles& lists, const Block& block, const PassFormula& formula,
       const TableColumns& out, const std::optional<ColdEdges>& cold)
      : streaming_(streaming),
        lists_(lists),
        formula_(formula),
        out_(out),
        row_formula_{.block = block,
                     .product_scale = formula.product_scale,
                     .self_weight = formula.self_weight,
                     .addend_format = formula.addend ? formula.addend->format : ValueFormat::float32,
                     .addend_scale = formula.addend_scale,
                     .output_format = out.format},
        window_(cold, lists, row_formula_.block),
        staging_(streaming, lists, block.num_columns, formula, out, window_),
        num_strips_((lists.num_nodes + group_rows - 1) / group_rows * (group_rows / staging_.strip_rows())),
        load_edges_(staging_.load_pieces() * piece_edges),
        strips_(staging_.strip_slots()),
        spanning_(staging_, block.num_columns,
                  [this](std::uint64_t row, const float* sum) { finish_spanning(row, sum); }),
        strip_ring_(streaming.engine, num_strips_, staging_.strip_slots(),
                    [this](std::uint64_t strip, std::uint64_t slot) { return strip_reads(strip, slot); }),
        load_ring_(streaming.engine, (lists.num_edges + load_edges_ - 1) / load_edges_, staging_.load_slots(),
                   [this](std::uint64_t load, std::uint64_t slot) { return load_reads(load, slot); }) {
    window_.share_out(staging_.load_pieces());
  }

  PassCounts run() {
    std::atomic<std::uint64_t> num_lanes = 0;
    run_guarded(
        streaming_.num_threads,
        [&] {
          // Relaxed: only to tell threads apart.
          float* const scratch = staging_.scratch(num_lanes.fetch_add(1, std::memory_order_relaxed));
          Turn turn;
          while (hand_out(turn)) {
            carry_out(turn, scratch);
            end(turn);
          }
        },
        [&] {
          strip_ring_.stop();
          load_ring_.stop();
        });
    strip_ring_.finish();
    StreamCounts counts = strip_ring_.counts();
    counts.bytes_read += load_ring_.counts().bytes_read;
    counts.seconds_waiting += load_ring_.counts().seconds_waiting;
    counts.written_sum = written_sum_;
    return {.stream = counts,
            .num_sources = num_sources_,
            .num_bad_rows = bad_rows_.num_rows(),
            .bad_rows = bad_rows_.first()};
  }

 private:
  struct Strip {
    StripRows rows;
    std::uint64_t num_open = 0;  // turns, and rows that span pieces, not ended
    bool is_handed_out = false;  // to its end
  };

  // -- what is read --

  [[nodiscard]] std::uint64_t rows_of(std::uint64_t strip) const {
    const std::uint64_t first_row = strip * staging_.strip_rows();
    return first_row >= lists_.num_nodes ? 0 : std::min(staging_.strip_rows(), lists_.num_nodes - first_row);
  }

  [[nodiscard]] AlignedRead indptr_read(std::uint64_t strip, std::uint64_t slot) const {
    return aligned_read(*lists_.indptr, lists_.indptr_offset + strip * staging_.strip_rows() * sizeof(std::int64_t),
                        (rows_of(strip) + 1) * sizeof(std::int64_t), staging_.strip(slot));
  }
  [[nodiscard]] AlignedRead scales_read(std::uint64_t strip, std::uint64_t slot) const {
    return aligned_read(*formula_.row_scale, strip * staging_.strip_rows() * sizeof(float),
                        rows_of(strip) * sizeof(float), staging_.strip(slot) + staging_.places().scales);
  }
  [[nodiscard]] AlignedRead load_read(std::uint64_t load, std::uint64_t slot) const {
    return aligned_read(*lists_.indices, lists_.indices_offset + load * load_edges_ * lists_.index_bytes,
                        edges_of(load) * lists_.index_bytes, staging_.load(slot));
  }
  [[nodiscard]] std::uint64_t edges_of(std::uint64_t load) const {
    return std::min(load_edges_, lists_.num_edges - load * load_edges_);
  }
  [[nodiscard]] std::vector<Op> load_reads(std::uint64_t load, std::uint64_t slot) const {
    std::vector<Op> ops{load_read(load, slot).op};
    if (const std::optional<Op> cold = window_.read(load, slot)) ops.push_back(*cold);
    return ops;
  }
  [[nodiscard]] std::uint64_t num_tiles() const { return row_formula_.block.num_columns / tile_columns; }

  [[nodiscard]] std::vector<Op> strip_reads(std::uint64_t strip, std::uint64_t slot) const {
    if (rows_of(strip) == 0) return {};
    std::vector<Op> ops{indptr_read(strip, slot).op};
    if (formula_.row_scale != nullptr) ops.push_back(scales_read(strip, slot).op);
    if (formula_.addend) {
      const std::vector<Op> more =
          tile_ops(OperationKind::read, *formula_.addend, num_tiles(), strip * staging_.strip_rows(),
                   staging_.strip_rows(), staging_.strip(slot) + staging_.places().addend);
      ops.insert(ops.end(), more.begin(), more.end());
    }
    return ops;
  }

  // -- one thread at a time --

  /// The next turn, its rows and edges in memory. False when there is none, or some thread failed.
  bool hand_out(Turn& turn) {
    const std::lock_guard one_at_a_time(handing_out_);
    if (next_strip_ == num_strips_) return false;
    if (!is_strip_begun_) {
      if (!strip_ring_.bring(next_strip_)) return false;
      begin_strip();
    }
    const std::uint64_t limit = std::min((next_edge_ / piece_edges + 1) * piece_edges, lists_.num_edges);
    turn = {.strip = next_strip_};
    const bool is_strip_over = rows_of(next_strip_) == 0 || take_rows(turn, limit);
    if (turn.has_edges()) {
      const std::uint64_t load = turn.first_edge / load_edges_;
      if (!load_ring_.bring(load)) return false;
      if (window_.is_used() && load == num_loads_begun_) begin_load(load);
    }
    if (is_strip_over) {
      ++next_strip_;
      is_strip_begun_ = false;
    }
    note_begun(turn, is_strip_over, turn.end_edge == limit);
    return true;
  }

  /// The strip's next rows, up to its end or to edge `limit`, where the piece ends. Whether it was the strip's end.
  bool take_rows(Turn& turn, std::uint64_t limit) {
    const StripRows& rows = strips_[strip_ring_.slot_of(next_strip_)].rows;
    const std::uint64_t end_row = rows.first_row + rows_of(next_strip_);
    const auto begin_of = [&](std::uint64_t row) {
      return static_cast<std::uint64_t>(rows.indptr[row - rows.first_row]);
    };
    // The first row that does not end within the piece.
    const std::int64_t* const ends = rows.indptr + 1;
    const std::int64_t* const cut = std::upper_bound(
        ends + (next_row_ - rows.first_row), ends + (end_row - rows.first_row), static_cast<std::int64_t>(limit));
    const std::uint64_t cut_row = rows.first_row + static_cast<std::uint64_t>(cut - ends);
    turn.begin_row = next_row_;
    turn.first_edge = next_edge_;
    turn.has_head = begin_of(next_row_) < next_edge_;
    turn.has_tail = cut_row < end_row && std::max(begin_of(cut_row), next_edge_) < limit;
    turn.end_row = turn.has_tail ? cut_row + 1 : cut_row;
    turn.end_edge = turn.has_tail ? limit : begin_of(cut_row);
    next_row_ = cut_row;
    next_edge_ = turn.end_edge;
    return cut_row == end_row;
  }

  /// With cold edges indices are looked at here, while nobody reads them: some of them change.
  void begin_load(std::uint64_t load) {
    const std::uint64_t slot = load_ring_.slot_of(load);
    const AlignedRead read = load_read(load, slot);
    const std::uint64_t largest =
        window_.redirect(load, slot, read.op.buffer + read.skipped, edges_of(load), streaming_.instructions);
    check_source(largest, lists_.num_nodes, load * load_edges_, load * load_edges_ + edges_of(load));
    ++num_loads_begun_;
  }

  void begin_strip() {
    const std::uint64_t slot = strip_ring_.slot_of(next_strip_);
    const std::uint64_t num_rows = rows_of(next_strip_);
    Strip& strip = strips_[slot];
    std::byte* const memory = staging_.strip(slot);
    strip = {.rows = {.first_row = next_strip_ * staging_.strip_rows(),
                      .num_rows = staging_.strip_rows(),
                      .output = memory + staging_.places().output}};
    if (num_rows > 0) {
      strip.rows.indptr = reinterpret_cast<const std::int64_t*>(memory + indptr_read(next_strip_, slot).skipped);
      if (formula_.row_scale != nullptr) {
        const AlignedRead read = scales_read(next_strip_, slot);
        strip.rows.scales = reinterpret_cast<const float*>(read.op.buffer + read.skipped);
      }
      if (formula_.addend) strip.rows.addend = memory + staging_.places().addend;
      check_indptr(strip.rows, num_rows);
    }
    if (num_rows < staging_.strip_rows()) fill_padding(row_formula_, strip.rows, num_rows);
    is_strip_begun_ = true;
  }

  void check_indptr(const StripRows& rows, std::uint64_t num_rows) const {
    bool ascends = rows.indptr[0] == static_cast<std::int64_t>(next_edge_);
    for (std::uint64_t row = 0; row < num_rows; ++row) ascends &= rows.indptr[row] <= rows.indptr[row + 1];
    const bool is_last = rows.first_row + num_rows == lists_.num_nodes;
    const auto end_edge = static_cast<std::uint64_t>(rows.indptr[num_rows]);
    if (ascends && (is_last ? end_edge == lists_.num_edges : end_edge <= lists_.num_edges)) return;
    throw DamagedListsError(lists_.indptr->path() + ": topology is damaged: the lists of nodes " +
                            std::to_string(rows.first_row) + " to " + std::to_string(rows.first_row + num_rows - 1) +
                            " do not follow each other within " + std::to_string(lists_.num_edges) + " edges");
  }

  void note_begun(const Turn& turn, bool is_strip_over, bool is_piece_over) {
    const std::lock_guard lock(mutex_);
    Strip& strip = strips_[strip_ring_.slot_of(turn.strip)];
    ++strip.num_open;
    if (turn.has_tail && !turn.is_within_one_row()) ++strip.num_open;
    strip.is_handed_out = is_strip_over;
    if (turn.has_edges()) spanning_.begin_part(turn.piece(), is_piece_over);
  }

  // -- all threads --

  /// Sums the rows, and finishes those that have all their edges here.
  void carry_out(const Turn& turn, float* scratch) {
    const StripRows& rows = strips_[strip_ring_.slot_of(turn.strip)].rows;
    const std::uint64_t num_columns = row_formula_.block.num_columns;
    ListPart part{.index_bytes = lists_.index_bytes,
                  .first_edge = static_cast<std::int64_t>(turn.first_edge),
                  .end_edge = static_cast<std::int64_t>(turn.end_edge)};
    if (turn.has_edges()) {
      part.indices = indices_of(turn);
      if (!window_.is_used()) {
        check_source(largest_index(part, streaming_.instructions), row_formula_.block.num_rows, turn.first_edge,
                     turn.end_edge);
      }
    }
    for (std::uint64_t row = turn.begin_row; row < turn.end_row; row += part.num_rows) {
      part.ends = rows.indptr + 1 + (row - rows.first_row);
      part.num_rows = std::min(turn.end_row - row, staging_.chunk_rows());
      sum_lists(part, row_formula_.block, scratch, streaming_.instructions);

      std::uint64_t begin = row;
      std::uint64_t end = row + part.num_rows;
      if (turn.has_head && row == turn.begin_row) {
        std::copy_n(scratch, num_columns, staging_.partial_sums(turn.piece()));
        ++begin;
      }
      if (turn.has_tail && end == turn.end_row && begin < end) {
        --end;
        std::copy_n(scratch + (end - row) * num_columns, num_columns,
                    staging_.partial_sums(turn.piece()) + num_columns);
      }
      finish_rows(row_formula_, rows, begin - rows.first_row, end - begin, scratch + (begin - row) * num_columns,
                  bad_rows_, streaming_.instructions);
      const std::int64_t next_edge = std::min(part.ends[part.num_rows - 1], part.end_edge);
      if (turn.has_edges()) part.indices += (next_edge - part.first_edge) * lists_.index_bytes;
      part.first_edge = next_edge;
    }
  }

  [[nodiscard]] const std::byte* indices_of(const Turn& turn) const {
    const std::uint64_t load = turn.first_edge / load_edges_;
    const AlignedRead read = load_read(load, load_ring_.slot_of(load));
    return read.op.buffer + read.skipped + (turn.first_edge - load * load_edges_) * lists_.index_bytes;
  }

  void check_source(std::uint64_t largest, std::uint64_t num_sources, std::uint64_t first_edge,
                    std::uint64_t end_edge) {
    if (largest < num_sources) return note_source(largest);
    throw DamagedListsError(lists_.indices->path() + ": topology is damaged: one of edges " +
                            std::to_string(first_edge) + " to " + std::to_string(end_edge - 1) + " comes from node " +
                            std::to_string(static_cast<std::int64_t>(largest)) + ", must be less than " +
                            std::to_string(num_sources));
  }

  void note_source(std::uint64_t largest) {
    // Relaxed: read when all threads have ended.
    std::uint64_t known = num_sources_.load(std::memory_order_relaxed);
    while (known <= largest && !num_sources_.compare_exchange_weak(known, largest + 1, std::memory_order_relaxed)) {
    }
  }

  /// Lets go what nobody needs any more.
  void end(const Turn& turn) {
    std::vector<std::uint64_t> strips_done;
    std::uint64_t first_load = 0;
    std::uint64_t end_load = 0;
    {
      const std::lock_guard lock(mutex_);
      strips_done_.clear();
      if (turn.has_edges()) {
        if (turn.has_head) spanning_.end_head(turn.piece(), !turn.is_within_one_row(), turn.begin_row);
        if (turn.has_tail && !turn.is_within_one_row()) spanning_.end_tail(turn.piece());
        spanning_.end_part(turn.piece());
        first_load = num_loads_released_;
        end_load = loads_within(spanning_.advance());
        num_loads_released_ = end_load;
      }
      close_one(turn.strip);
      strips_done.swap(strips_done_);
    }
    for (std::uint64_t load = first_load; load < end_load; ++load) load_ring_.release(load, {});
    for (const std::uint64_t strip : strips_done) {
      const std::uint64_t slot = strip_ring_.slot_of(strip);
      const std::vector<Op> writes = tile_ops(OperationKind::write, out_, num_tiles(), strip * staging_.strip_rows(),
                                              staging_.strip_rows(), staging_.strip(slot) + staging_.places().output);
      std::uint64_t sum = 0;
      for (const Op& op : writes) sum += page_sums({op.buffer, op.num_bytes}, op.offset / sum_page_bytes);
      // Relaxed: read when all threads have ended.
      written_sum_.fetch_add(sum, std::memory_order_relaxed);
      strip_ring_.release(strip, writes);
    }
  }

  /// Whole loads that so many pieces, from the first, make up.
  [[nodiscard]] std::uint64_t loads_within(std::uint64_t num_pieces) const {
    const std::uint64_t all_pieces = (lists_.num_edges + piece_edges - 1) / piece_edges;
    const std::uint64_t load_pieces = staging_.load_pieces();
    return num_pieces == all_pieces ? (num_pieces + load_pieces - 1) / load_pieces : num_pieces / load_pieces;
  }

  /// Under the lock.
  void finish_spanning(std::uint64_t row, const float* sum) {
    const std::uint64_t strip = row / staging_.strip_rows();
    const StripRows& rows = strips_[strip_ring_.slot_of(strip)].rows;
    finish_rows(row_formula_, rows, row - rows.first_row, 1, sum, bad_rows_, streaming_.instructions);
    close_one(strip);
  }

  /// Under the lock.
  void close_one(std::uint64_t number) {
    Strip& strip = strips_[strip_ring_.slot_of(number)];
    if (--strip.num_open == 0 && strip.is_handed_out) strips_done_.push_back(number);
  }

  const Streaming& streaming_;
  const ListFiles& lists_;
  const PassFormula& formula_;
  const TableColumns& out_;
  RowFormula row_formula_;
  ColdWindow window_;
  PassStaging staging_;
  std::uint64_t num_strips_;
  std::uint64_t load_edges_;

  std::mutex handing_out_;  // guards what follows, and who may bring
  std::uint64_t next_strip_ = 0;
  std::uint64_t next_row_ = 0;
  std::uint64_t next_edge_ = 0;
  bool is_strip_begun_ = false;
  std::uint64_t num_loads_begun_ = 0;

  std::mutex mutex_;           // guards what follows, but for the rows of strips begun
  std::vector<Strip> strips_;  // by slot
  std::vector<std::uint64_t> strips_done_;
  SpanningRows spanning_;
  std::uint64_t num_loads_released_ = 0;

  std::atomic<std::uint64_t> written_sum_ = 0;
  std::atomic<std::uint64_t> num_sources_ = 0;
  BadRows bad_rows_;

  SlotRing strip_ring_;  // last: they wait for what is in flight
  SlotRing load_ring_;
};

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

}  // namespace

PassCounts run_pass(const Streaming& streaming, const ListFiles& lists, const Block& block, const PassFormula& formula,
                    const TableColumns& out, const std::optional<ColdEdges>& cold) {
  require(streaming.num_threads > 0, "a pass takes at least one thread");
  require(lists.index_bytes == 4 || lists.index_bytes == 8, "a pass: indices have 4 or 8 bytes");
  require(lists.indptr_offset % sizeof(std::int64_t) == 0 && lists.indices_offset % lists.index_bytes == 0,
          "a pass: lists must begin at a multiple of an entry's bytes");
  require(block.num_rows == lists.num_nodes || (block.num_rows < lists.num_nodes && formula.self_weight == 0),
          "a pass: the block must have a row for each node whose own counts");
  check_columns("a pass writes", out, block.num_columns);
  if (formula.addend) check_columns("a pass adds", *formula.addend, block.num_columns);
  Pass pass(streaming, lists, block, formula, out, cold);
  return pass.run();
}

}  // namespace diskhop
