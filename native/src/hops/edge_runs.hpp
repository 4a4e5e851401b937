// Edges of a turn as runs, several at a time: steps over edges take long loops although most lists are short.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hops/column_sums.hpp"
#include "hops/list_pieces.hpp"

namespace diskhop {

/// Up to run_edges edges of one row, which are added edge by edge.
struct EdgeRun {
  std::size_t row = 0;
  std::size_t first = 0;  // position in the batch
  std::size_t num_edges = 0;
  bool is_first = false;  // of its row within the turn
  bool is_last = false;
};

/// Edges of consecutive runs.
struct RunBatch {
  static constexpr std::size_t max_edges = 256;

  std::array<EdgeRun, max_edges> runs;
  std::size_t num_runs = 0;
  std::size_t num_edges = 0;
  const std::byte* indices = nullptr;
};

/// Divides a turn into batches.
class TurnRuns {
 public:
  TurnRuns(const PieceTurn& turn, const StreamedLists& lists)
      : turn_(turn), lists_(lists), row_(turn.begin_row), edge_(turn.first_edge) {}

  /// Fills the next batch; returns whether there is one.
  [[nodiscard]] bool next(RunBatch& batch) {
    batch.num_runs = 0;
    batch.num_edges = 0;
    batch.indices = turn_.indices + (edge_ - turn_.first_edge) * lists_.index_bytes;
    while (row_ < turn_.end_row) {
      const std::int64_t begin = std::max(lists_.indptr[row_], turn_.first_edge);
      const std::int64_t end = std::min(lists_.indptr[row_ + 1], turn_.end_edge);
      if (edge_ < end) {
        const std::int64_t next_edge = std::min<std::int64_t>(edge_ + run_edges, end);
        const auto num_edges = static_cast<std::size_t>(next_edge - edge_);
        if (batch.num_edges + num_edges > RunBatch::max_edges) break;
        batch.runs[batch.num_runs++] = {.row = row_,
                                        .first = batch.num_edges,
                                        .num_edges = num_edges,
                                        .is_first = edge_ == begin,
                                        .is_last = next_edge == end};
        batch.num_edges += num_edges;
        edge_ = next_edge;
      }
      if (edge_ >= end) ++row_;
    }
    return batch.num_edges > 0;
  }

 private:
  const PieceTurn& turn_;
  const StreamedLists& lists_;
  std::size_t row_;
  std::int64_t edge_;
};

}  // namespace diskhop
