#include "hops/pass_stretch.hpp"

#include <algorithm>
#include <string>

#include "diskhop/io/content_sum.hpp"
#include "hops/neighbor_sums.hpp"

namespace diskhop {
namespace {

std::uint64_t whole_groups(std::uint64_t row) { return (row + group_rows - 1) / group_rows; }

std::uint64_t pieces_before(std::uint64_t edge) { return (edge + piece_edges - 1) / piece_edges; }

}  // namespace

PassStretch::PassStretch(const Streaming& streaming, PassWork& work, const RowRange& range, std::uint64_t number,
                         std::uint64_t num_parts)
    : work_(work),
      lists_(work.lists),
      instructions_(streaming.instructions),
      window_(work.cold, lists_, work.row_formula.block, number, num_parts),
      staging_(streaming, lists_, work.row_formula.block.num_columns, work.formula, work.out, window_),
      load_edges_(staging_.load_pieces() * piece_edges),
      end_strip_(whole_groups(range.end_row) * (group_rows / staging_.strip_rows())),
      end_edge_(range.end_edge),
      next_strip_(range.first_row / staging_.strip_rows()),
      next_row_(range.first_row),
      next_edge_(range.first_edge),
      next_load_(range.first_edge / load_edges_),
      strips_(staging_.strip_slots()),
      spanning_(staging_, work.row_formula.block.num_columns, range.first_edge / piece_edges,
                [this](std::uint64_t row, const float* sum) { finish_spanning(row, sum); }),
      next_released_(next_load_),
      strip_ring_(streaming.engine, next_strip_, end_strip_, staging_.strip_slots(),
                  [this](std::uint64_t strip, std::uint64_t slot) { return strip_reads(strip, slot); }),
      load_ring_(streaming.engine, next_load_, loads_before(pieces_before(end_edge_)), staging_.load_slots(),
                 [this](std::uint64_t load, std::uint64_t slot) { return load_reads(load, slot); }) {
  window_.share_out(staging_.load_pieces());
}

bool PassStretch::is_ready() {
  if (is_over()) return false;
  // A strip's first edges are requested with the preceding ones: once its rows are there, they soon will be.
  if (!is_strip_begun_ && !strip_ring_.is_fetched(next_strip_)) return false;
  return next_edge_ == end_edge_ || load_ring_.is_fetched(next_edge_ / load_edges_);
}

// -- reading --

std::uint64_t PassStretch::rows_of(std::uint64_t strip) const {
  const std::uint64_t first_row = strip * staging_.strip_rows();
  return first_row >= lists_.num_nodes ? 0 : std::min(staging_.strip_rows(), lists_.num_nodes - first_row);
}

std::uint64_t PassStretch::edges_of(std::uint64_t load) const {
  return std::min(load_edges_, lists_.num_edges - load * load_edges_);
}

AlignedRead PassStretch::indptr_read(std::uint64_t strip, std::uint64_t slot) const {
  return aligned_read(*lists_.indptr, lists_.indptr_offset + strip * staging_.strip_rows() * sizeof(std::int64_t),
                      (rows_of(strip) + 1) * sizeof(std::int64_t), staging_.strip(slot));
}

AlignedRead PassStretch::scales_read(std::uint64_t strip, std::uint64_t slot) const {
  return aligned_read(*work_.formula.row_scale, strip * staging_.strip_rows() * sizeof(float),
                      rows_of(strip) * sizeof(float), staging_.strip(slot) + staging_.places().scales);
}

AlignedRead PassStretch::load_read(std::uint64_t load, std::uint64_t slot) const {
  return aligned_read(*lists_.indices, lists_.indices_offset + load * load_edges_ * lists_.index_bytes,
                      edges_of(load) * lists_.index_bytes, staging_.load(slot));
}

AlignedRead PassStretch::weights_read(std::uint64_t load, std::uint64_t slot) const {
  return aligned_read(*lists_.weights, lists_.weights_offset + load * load_edges_ * sizeof(float),
                      edges_of(load) * sizeof(float), staging_.load_weights(slot));
}

std::vector<Op> PassStretch::load_reads(std::uint64_t load, std::uint64_t slot) const {
  std::vector<Op> ops{load_read(load, slot).op};
  if (lists_.weights != nullptr) ops.push_back(weights_read(load, slot).op);
  if (const std::optional<Op> cold = window_.read(load, slot)) ops.push_back(*cold);
  return ops;
}

std::vector<Op> PassStretch::strip_reads(std::uint64_t strip, std::uint64_t slot) const {
  if (rows_of(strip) == 0) return {};
  std::vector<Op> ops{indptr_read(strip, slot).op};
  if (work_.formula.row_scale != nullptr) ops.push_back(scales_read(strip, slot).op);
  if (work_.formula.addend) {
    const std::vector<Op> more =
        tile_ops(OperationKind::read, *work_.formula.addend, num_tiles(), strip * staging_.strip_rows(),
                 staging_.strip_rows(), staging_.strip(slot) + staging_.places().addend);
    ops.insert(ops.end(), more.begin(), more.end());
  }
  return ops;
}

// -- one thread at a time --

bool PassStretch::hand_out(Turn& turn) {
  if (is_over()) return false;
  if (!is_strip_begun_) {
    if (!strip_ring_.fetch(next_strip_)) return false;
    begin_strip();
  }
  const std::uint64_t limit = std::min((next_edge_ / piece_edges + 1) * piece_edges, end_edge_);
  turn = {.strip = next_strip_};
  const bool is_strip_over = rows_of(next_strip_) == 0 || take_rows(turn, limit);
  if (turn.has_edges()) {
    const std::uint64_t load = turn.first_edge / load_edges_;
    if (!load_ring_.fetch(load)) return false;
    if (window_.is_used() && load == next_load_) begin_load(load);
  }
  if (is_strip_over) {
    ++next_strip_;
    is_strip_begun_ = false;
  }
  note_begun(turn, is_strip_over, turn.end_edge == limit);
  return true;
}

/// Takes the strip's next rows, up to its end or to edge `limit`, where the piece ends. Returns whether the strip
/// ended.
bool PassStretch::take_rows(Turn& turn, std::uint64_t limit) {
  const StripRows& rows = strips_[strip_ring_.slot_of(next_strip_)].rows;
  const std::uint64_t end_row = rows.first_row + rows_of(next_strip_);
  const auto begin_of = [&](std::uint64_t row) {
    return static_cast<std::uint64_t>(rows.indptr[row - rows.first_row]);
  };
  // The first row that does not end within the piece.
  const std::int64_t* const ends = rows.indptr + 1;
  const std::int64_t* const cut = std::upper_bound(ends + (next_row_ - rows.first_row),
                                                   ends + (end_row - rows.first_row), static_cast<std::int64_t>(limit));
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

/// With cold edges, indices are checked and redirected here, before other threads read them.
void PassStretch::begin_load(std::uint64_t load) {
  const std::uint64_t slot = load_ring_.slot_of(load);
  const AlignedRead read = load_read(load, slot);
  const std::uint64_t largest =
      window_.redirect(load, slot, read.op.buffer + read.skipped, edges_of(load), instructions_);
  check_source(largest, lists_.num_nodes, load * load_edges_, load * load_edges_ + edges_of(load));
  ++next_load_;
}

void PassStretch::begin_strip() {
  const std::uint64_t slot = strip_ring_.slot_of(next_strip_);
  const std::uint64_t num_rows = rows_of(next_strip_);
  Strip& strip = strips_[slot];
  std::byte* const memory = staging_.strip(slot);
  strip = {.rows = {.first_row = next_strip_ * staging_.strip_rows(),
                    .num_rows = staging_.strip_rows(),
                    .output = memory + staging_.places().output}};
  if (num_rows > 0) {
    strip.rows.indptr = reinterpret_cast<const std::int64_t*>(memory + indptr_read(next_strip_, slot).skipped);
    if (work_.formula.row_scale != nullptr) {
      const AlignedRead read = scales_read(next_strip_, slot);
      strip.rows.scales = reinterpret_cast<const float*>(read.op.buffer + read.skipped);
    }
    if (work_.formula.addend) strip.rows.addend = memory + staging_.places().addend;
    check_indptr(strip.rows, num_rows);
  }
  if (num_rows < staging_.strip_rows()) fill_padding(work_.row_formula, strip.rows, num_rows);
  is_strip_begun_ = true;
}

void PassStretch::check_indptr(const StripRows& rows, std::uint64_t num_rows) const {
  bool ascends = rows.indptr[0] == static_cast<std::int64_t>(next_edge_);
  for (std::uint64_t row = 0; row < num_rows; ++row) ascends &= rows.indptr[row] <= rows.indptr[row + 1];
  const auto last_edge = static_cast<std::uint64_t>(rows.indptr[num_rows]);
  if (ascends && (next_strip_ + 1 == end_strip_ ? last_edge == end_edge_ : last_edge <= end_edge_)) return;
  throw DamagedListsError(lists_.indptr->path() + ": topology is damaged: the lists of nodes " +
                          std::to_string(rows.first_row) + " to " + std::to_string(rows.first_row + num_rows - 1) +
                          " do not follow each other within " + std::to_string(lists_.num_edges) + " edges");
}

void PassStretch::note_begun(const Turn& turn, bool is_strip_over, bool is_piece_over) {
  const std::lock_guard lock(mutex_);
  Strip& strip = strips_[strip_ring_.slot_of(turn.strip)];
  ++strip.num_open;
  if (turn.has_tail && !turn.is_within_one_row()) ++strip.num_open;
  strip.is_handed_out = is_strip_over;
  if (turn.has_edges()) spanning_.begin_part(turn.piece(), is_piece_over);
}

// -- all threads --

void PassStretch::carry_out(const Turn& turn, std::uint64_t lane) {
  sum_rows(turn, staging_.scratch(lane));
  end(turn);
}

/// Sums rows, and finishes those that have all their edges in this turn.
void PassStretch::sum_rows(const Turn& turn, float* scratch) {
  const StripRows& rows = strips_[strip_ring_.slot_of(turn.strip)].rows;
  const Block& block = work_.row_formula.block;
  const PrefetchDistance::Turn ahead = work_.edges_ahead.begin();
  ListPart part{.index_bytes = lists_.index_bytes,
                .first_edge = static_cast<std::int64_t>(turn.first_edge),
                .end_edge = static_cast<std::int64_t>(turn.end_edge),
                .edges_ahead = ahead.edges_ahead};
  if (turn.has_edges()) {
    part.indices = indices_of(turn);
    part.weights = weights_of(turn);
    if (!window_.is_used()) {
      check_source(largest_index(part, instructions_), block.num_rows, turn.first_edge, turn.end_edge);
    }
  }
  for (std::uint64_t row = turn.begin_row; row < turn.end_row; row += part.num_rows) {
    part.ends = rows.indptr + 1 + (row - rows.first_row);
    part.num_rows = std::min(turn.end_row - row, staging_.chunk_rows());
    sum_lists(part, block, scratch, instructions_);

    std::uint64_t begin = row;
    std::uint64_t end = row + part.num_rows;
    if (turn.has_head && row == turn.begin_row) {
      std::copy_n(scratch, block.num_columns, staging_.partial_sums(turn.piece()));
      ++begin;
    }
    if (turn.has_tail && end == turn.end_row && begin < end) {
      --end;
      std::copy_n(scratch + (end - row) * block.num_columns, block.num_columns,
                  staging_.partial_sums(turn.piece()) + block.num_columns);
    }
    finish_rows(work_.row_formula, rows, begin - rows.first_row, end - begin,
                scratch + (begin - row) * block.num_columns, work_.bad_rows, instructions_);
    const std::int64_t next_edge = std::min(part.ends[part.num_rows - 1], part.end_edge);
    if (turn.has_edges()) part.indices += (next_edge - part.first_edge) * lists_.index_bytes;
    if (part.weights != nullptr) part.weights += next_edge - part.first_edge;
    part.first_edge = next_edge;
  }
  work_.edges_ahead.end(ahead, turn.end_edge - turn.first_edge);
}

const std::byte* PassStretch::indices_of(const Turn& turn) const {
  const std::uint64_t load = turn.first_edge / load_edges_;
  const AlignedRead read = load_read(load, load_ring_.slot_of(load));
  return read.op.buffer + read.skipped + (turn.first_edge - load * load_edges_) * lists_.index_bytes;
}

const float* PassStretch::weights_of(const Turn& turn) const {
  if (lists_.weights == nullptr) return nullptr;
  const std::uint64_t load = turn.first_edge / load_edges_;
  const AlignedRead read = weights_read(load, load_ring_.slot_of(load));
  return reinterpret_cast<const float*>(read.op.buffer + read.skipped) + (turn.first_edge - load * load_edges_);
}

void PassStretch::check_source(std::uint64_t largest, std::uint64_t num_sources, std::uint64_t first_edge,
                               std::uint64_t end_edge) {
  if (largest < num_sources) return note_source(largest);
  throw DamagedListsError(lists_.indices->path() + ": topology is damaged: one of edges " + std::to_string(first_edge) +
                          " to " + std::to_string(end_edge - 1) + " comes from node " +
                          std::to_string(static_cast<std::int64_t>(largest)) + ", must be less than " +
                          std::to_string(num_sources));
}

void PassStretch::note_source(std::uint64_t largest) {
  // Relaxed: read after all threads have ended.
  std::uint64_t known = work_.num_sources.load(std::memory_order_relaxed);
  while (known <= largest && !work_.num_sources.compare_exchange_weak(known, largest + 1, std::memory_order_relaxed)) {
  }
}

/// Releases strips and loads that no turn needs any more.
void PassStretch::end(const Turn& turn) {
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
      first_load = next_released_;
      end_load = loads_before(spanning_.advance());
      next_released_ = end_load;
    }
    close_one(turn.strip);
    strips_done.swap(strips_done_);
  }
  for (std::uint64_t load = first_load; load < end_load; ++load) load_ring_.release(load, {});
  for (const std::uint64_t strip : strips_done) {
    const std::uint64_t slot = strip_ring_.slot_of(strip);
    const std::vector<Op> writes = tile_ops(OperationKind::write, work_.out, num_tiles(), strip * staging_.strip_rows(),
                                            staging_.strip_rows(), staging_.strip(slot) + staging_.places().output);
    std::uint64_t sum = 0;
    for (const Op& op : writes) sum += page_sums({op.buffer, op.num_bytes}, op.offset / sum_page_bytes);
    // Relaxed: read after all threads have ended.
    work_.written_sum.fetch_add(sum, std::memory_order_relaxed);
    strip_ring_.release(strip, writes);
  }
}

/// Number of whole loads that end before this piece.
std::uint64_t PassStretch::loads_before(std::uint64_t piece) const {
  const std::uint64_t load_pieces = staging_.load_pieces();
  return piece == pieces_before(end_edge_) ? (piece + load_pieces - 1) / load_pieces : piece / load_pieces;
}

void PassStretch::finish_spanning(std::uint64_t row, const float* sum) {
  const std::uint64_t strip = row / staging_.strip_rows();
  const StripRows& rows = strips_[strip_ring_.slot_of(strip)].rows;
  finish_rows(work_.row_formula, rows, row - rows.first_row, 1, sum, work_.bad_rows, instructions_);
  close_one(strip);
}

void PassStretch::close_one(std::uint64_t number) {
  Strip& strip = strips_[strip_ring_.slot_of(number)];
  if (--strip.num_open == 0 && strip.is_handed_out) strips_done_.push_back(number);
}

void PassStretch::stop() noexcept {
  strip_ring_.stop();
  load_ring_.stop();
}

StreamCounts PassStretch::finish() {
  strip_ring_.finish();
  StreamCounts counts = strip_ring_.counts();
  counts.bytes_read += load_ring_.counts().bytes_read;
  counts.seconds_waiting += load_ring_.counts().seconds_waiting;
  return counts;
}

}  // namespace diskhop
