#include "diskhop/hops/propagate.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "hops/pass_stretch.hpp"
#include "hops/slot_ring.hpp"

namespace diskhop {
namespace {

// Rows with this many edges take longer to write than to sum; with twice as many it is the reverse. (16 columns: an
// edge takes 4 ns on two cores, a row 17 to 32 ns on the disk.)
constexpr std::uint64_t few_edges = 4;
// Row ends sampled to find where rows with few edges begin.
constexpr std::uint64_t num_looks = 15;
// Half of less staging is too little to keep the disk busy.
constexpr std::uint64_t least_split_bytes = 4 << 20;

struct Place {
  std::uint64_t row = 0;
  std::uint64_t edge = 0;
};

/// Finds where rows with few edges begin, if the rows before have many.
std::optional<Place> find_few(const Streaming& streaming, const ListFiles& lists) {
  const std::uint64_t num_groups = lists.num_nodes / group_rows;
  std::vector<Place> places;
  std::vector<AlignedRead> reads;
  std::vector<Op> ops;
  for (std::uint64_t look = 1; look <= num_looks; ++look) {
    const std::uint64_t row = num_groups * look / (num_looks + 1) * group_rows;
    if (row == 0 || (!places.empty() && places.back().row == row)) continue;
    std::byte* const memory = streaming.staging.data() + places.size() * aligned_read_bytes(sizeof(std::int64_t));
    reads.push_back(
        aligned_read(*lists.indptr, lists.indptr_offset + row * sizeof(std::int64_t), sizeof(std::int64_t), memory));
    ops.push_back(reads.back().op);
    places.push_back({.row = row});
  }
  Transfer transfer;
  transfer.begin(streaming.engine, ops);
  transfer.wait();
  for (std::size_t i = 0; i < places.size(); ++i) {
    Place& place = places[i];
    place.edge = *reinterpret_cast<const std::uint64_t*>(reads[i].op.buffer + reads[i].skipped);
    if (place.edge > lists.num_edges) return std::nullopt;  // damaged: reported when all rows are read
    const bool has_few = lists.num_edges - place.edge <= few_edges * (lists.num_nodes - place.row);
    if (has_few && place.edge >= 2 * few_edges * place.row) return place;
  }
  return std::nullopt;
}

/// Runs one stretch of rows, or two: rows with many edges and rows with few. The former keep the cores busy, the latter
/// the disk, so turns of both run concurrently.
class Pass {
 public:
  Pass(const Streaming& streaming, const ListFiles& lists, const Block& block, const PassFormula& formula,
       const TableColumns& out, const std::optional<ColdEdges>& cold)
      : num_threads_(streaming.num_threads),
        work_{.lists = lists,
              .formula = formula,
              .out = out,
              .row_formula = {.block = block,
                              .product_scale = formula.product_scale,
                              .self_weight = formula.self_weight,
                              .addend_format = formula.addend ? formula.addend->format : ValueFormat::float32,
                              .addend_scale = formula.addend_scale,
                              .output_format = out.format},
              .cold = cold,
              .bad_rows = {},
              .edges_ahead = {}} {
    const RowRange all{.end_row = lists.num_nodes, .end_edge = lists.num_edges};
    // With half of the window, a load's cold edges are used while the next ones are in flight.
    const bool has_room =
        streaming.staging.size() >= least_split_bytes && ColdWindow(cold, lists, block, 0, 2).slots_of(1) >= 2;
    const std::optional<Place> few = has_room ? find_few(streaming, lists) : std::nullopt;
    if (!few) {
      stretches_.emplace_back(streaming, work_, all, 0, 1);
      return;
    }
    const std::uint64_t half = streaming.staging.size() / 2 / io_alignment * io_alignment;
    const auto part = [&](std::span<std::byte> staging) {
      return Streaming{streaming.engine, staging, streaming.num_threads, streaming.instructions};
    };
    stretches_.emplace_back(part(streaming.staging.first(half)), work_,
                            RowRange{.end_row = few->row, .end_edge = few->edge}, 0, 2);
    stretches_.emplace_back(
        part(streaming.staging.subspan(half)), work_,
        RowRange{.first_row = few->row, .end_row = all.end_row, .first_edge = few->edge, .end_edge = all.end_edge}, 1,
        2);
  }

  PassCounts run() {
    std::atomic<std::uint64_t> num_lanes = 0;
    run_guarded(
        num_threads_,
        [&] {
          // Relaxed: only numbers the threads.
          const std::uint64_t lane = num_lanes.fetch_add(1, std::memory_order_relaxed);
          Turn turn;
          while (PassStretch* const stretch = hand_out(turn)) stretch->carry_out(turn, lane);
        },
        [&] {
          for (PassStretch& stretch : stretches_) stretch.stop();
        });
    PassCounts counts;
    for (PassStretch& stretch : stretches_) {
      const StreamCounts more = stretch.finish();
      counts.stream.bytes_read += more.bytes_read;
      counts.stream.bytes_written += more.bytes_written;
      counts.stream.seconds_waiting += more.seconds_waiting;
    }
    counts.stream.written_sum = work_.written_sum;
    counts.num_sources = work_.num_sources;
    counts.num_bad_rows = work_.bad_rows.num_rows();
    counts.bad_rows = work_.bad_rows.first();
    return counts;
  }

 private:
  /// Stretch of a turn that is ready; null if none is left or a thread failed.
  PassStretch* hand_out(Turn& turn) {
    const std::lock_guard one_at_a_time(handing_out_);
    // The last stretch's rows are written as fast as the disk allows; meanwhile there is work in the first.
    PassStretch& last = stretches_.back();
    PassStretch& chosen = stretches_.front().is_over() || last.is_ready() ? last : stretches_.front();
    return chosen.hand_out(turn) ? &chosen : nullptr;
  }

  unsigned num_threads_;
  PassWork work_;
  std::mutex handing_out_;
  std::deque<PassStretch> stretches_;  // a deque: stretches must not move
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
  require(lists.weights == nullptr || (lists.weights_offset % sizeof(float) == 0 && !cold),
          "a pass: weights begin at a multiple of 4 bytes, and there are no cold edges");
  require(block.num_rows == lists.num_nodes || (block.num_rows < lists.num_nodes && formula.self_weight == 0),
          "a pass: the block must have the rows of all nodes that add their own value");
  check_columns("a pass writes", out, block.num_columns);
  if (formula.addend) check_columns("a pass adds", *formula.addend, block.num_columns);
  Pass pass(streaming, lists, block, formula, out, cold);
  return pass.run();
}

}  // namespace diskhop
