#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "diskhop/hops/streamed_attention.hpp"
#include "hops/edge_runs.hpp"
#include "hops/list_pieces.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vector_exp.hpp"

namespace diskhop {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
// Rows of scores are short, so that more of them than of a block's rows can be in flight.
constexpr std::size_t edges_ahead = 64;
static_assert(edges_ahead <= most_edges_ahead);

// Heads as lanes of a vector: four or eight, or up to three and lanes without use. A single head's scores are stored
// without those.
template <std::size_t count>
struct HeadLanes {
  using Type = Quad;
  static constexpr std::size_t num_stored = count == 1 ? 1 : 4;
};
template <>
struct HeadLanes<8> {
  using Type = Register<8>;
  static constexpr std::size_t num_stored = 8;
};
template <std::size_t count>
using Lanes = typename HeadLanes<count>::Type;

// Value by value where there are fewer than four: part of a vector would be loaded by way of the stack.
template <std::size_t count>
[[gnu::always_inline]] inline void load_heads(const float* from, Lanes<count>& values) {
  if constexpr (count == 1) {
    values = Quad{from[0]};
  } else if constexpr (count == 2) {
    values = Quad{from[0], from[1]};
  } else if constexpr (count == 3) {
    values = Quad{from[0], from[1], from[2]};
  } else {
    std::memcpy(&values, from, sizeof values);
  }
}

template <std::size_t count>
[[gnu::always_inline]] inline void store_heads(float* to, const Lanes<count>& values) {
  if constexpr (count < 4) {
    for (std::size_t head = 0; head < count; ++head) to[head] = values[head];
  } else {
    std::memcpy(to, &values, sizeof values);
  }
}

constexpr std::size_t most_lanes = 8;

/// Memory of a thread.
struct NormScratch {
  RunBatch batch;
  std::array<float, RunBatch::max_edges * most_lanes> scores;
};

/// Norms of runs: for each run of a batch the largest scores, then the sums.
template <std::size_t lanes, typename Index>
struct RunNorms {
  const Matrix<const float>& source_scores;
  const Matrix<const float>& target_scores;
  float negative_slope;
  NormScratch& scratch;
  float* norms;

  [[gnu::always_inline]] void operator()() const {
    const std::size_t num_heads = source_scores.num_columns;
    std::size_t head = 0;
    for (; num_heads - head >= 8; head += 8) run_heads<8>(head);
    if (num_heads - head >= 4) {
      run_heads<4>(head);
      head += 4;
    }
    if (num_heads - head == 3) run_heads<3>(head);
    if (num_heads - head == 2) run_heads<2>(head);
    if (num_heads - head == 1) run_heads<1>(head);
  }

  // The heads [head, head + count).
  template <std::size_t count>
  [[gnu::always_inline]] void run_heads(std::size_t head) const {
    const RunBatch& batch = scratch.batch;
    for (std::size_t run = 0; run < batch.num_runs; ++run) score_run<count>(batch.runs[run], run, head);
    for (std::size_t value = 0; value < batch.num_edges * HeadLanes<count>::num_stored; value += lanes) {
      // Values beyond the last edge are of earlier batches, and of no use.
      Register<lanes> values;
      load_register<lanes>(scratch.scores.data() + value, lanes, values);
      exp_nonpositive(values);
      store_register<lanes>(scratch.scores.data() + value, lanes, values);
    }
    for (std::size_t run = 0; run < batch.num_runs; ++run) sum_run<count>(batch.runs[run], run, head);
  }

  template <std::size_t count>
  [[gnu::always_inline]] void score_run(const EdgeRun& run, std::size_t number, std::size_t head) const {
    const auto* index = reinterpret_cast<const Index*>(scratch.batch.indices) + run.first;
    const float* const sources = source_scores.data + head;
    const std::size_t stride = source_scores.stride;
    const std::size_t row_bytes = source_scores.num_columns * sizeof(float);
    const float slope = negative_slope;
    Lanes<count> of_target;
    load_heads<count>(target_scores.data + run.row * target_scores.stride + head, of_target);
    Lanes<count> largest = Lanes<count>{} - infinity;
    for (std::size_t edge = 0; edge < run.num_edges; ++edge) {
      // All heads of the row, when the first ones are scored: rows of many lengths straddle two lines.
      if (head == 0) {
        const std::uintptr_t row = reinterpret_cast<std::uintptr_t>(sources) +
                                   static_cast<std::size_t>(index[edge + edges_ahead]) * stride * sizeof(float);
        for (std::size_t byte = 0; byte < row_bytes; byte += line_bytes) prefetch_line(row + byte);
        if (count > 1) prefetch_line(row + row_bytes - 1);
      }
      Lanes<count> score;
      load_heads<count>(sources + static_cast<std::size_t>(index[edge]) * stride, score);
      score += of_target;
      score = score > 0 ? score : score * slope;
      largest = score <= largest ? largest : score;  // NaN reaches the result through the sum
      store_edge<count>(run.first + edge, score);
    }
    for (std::size_t edge = run.first; edge < run.first + run.num_edges; ++edge) {
      Lanes<count> score;
      load_edge<count>(edge, score);
      score -= largest;
      store_edge<count>(edge, score);
    }
    store_heads<count>(norms_of(number) + head, largest);
  }

  template <std::size_t count>
  [[gnu::always_inline]] void sum_run(const EdgeRun& run, std::size_t number, std::size_t head) const {
    Lanes<count> sum{};
    for (std::size_t edge = run.first; edge < run.first + run.num_edges; ++edge) {
      Lanes<count> value;
      load_edge<count>(edge, value);
      sum += value;
    }
    store_heads<count>(norms_of(number) + source_scores.num_columns + head, sum);
  }

  template <std::size_t count>
  [[gnu::always_inline]] void load_edge(std::size_t edge, Lanes<count>& values) const {
    constexpr std::size_t num_stored = HeadLanes<count>::num_stored;
    load_heads<num_stored>(scratch.scores.data() + edge * num_stored, values);
  }
  template <std::size_t count>
  [[gnu::always_inline]] void store_edge(std::size_t edge, const Lanes<count>& values) const {
    constexpr std::size_t num_stored = HeadLanes<count>::num_stored;
    store_heads<num_stored>(scratch.scores.data() + edge * num_stored, values);
  }

  [[gnu::always_inline]] float* norms_of(std::size_t run) const { return norms + run * 2 * source_scores.num_columns; }
};

/// Adds the norms of more edges to those of a row.
struct MergeNorms {
  float* to;
  const float* from;
  std::size_t num_heads;

  [[gnu::always_inline]] void operator()() const {
    for (std::size_t head = 0; head < num_heads; ++head) merge(to[head], to[num_heads + head], head);
  }

  [[gnu::always_inline]] void merge(float& largest, float& sum, std::size_t head) const {
    const float more_largest = from[head];
    const float more_sum = from[num_heads + head];
    if (sum == 0) {  // of no edges: the largest one of any counts as 1
      largest = more_largest;
      sum = more_sum;
      return;
    }
    const float joint = more_largest <= largest ? largest : more_largest;
    Quad factors{largest - joint, more_largest - joint};
    exp_nonpositive(factors);
    sum = sum * factors[0] + more_sum * factors[1];
    largest = joint;
  }
};

/// Norms of one call.
class NormSumming {
 public:
  NormSumming(const StreamedLists& lists, const Matrix<const float>& source_scores,
              const Matrix<const float>& target_scores, float negative_slope, const Matrix<float>& norms,
              std::size_t num_turns, std::size_t num_lanes, InstructionSet instructions)
      : lists_(lists),
        source_scores_(source_scores),
        target_scores_(target_scores),
        negative_slope_(negative_slope),
        norms_(norms),
        instructions_(instructions),
        scratch_(num_lanes),
        run_norms_(num_lanes * RunBatch::max_edges * norms.num_columns),
        totals_(num_lanes * norms.num_columns),
        heads_(num_turns * norms.num_columns) {}

  void sum(const PieceTurn& turn, std::size_t lane) {
    const std::size_t num_columns = norms_.num_columns;
    NormScratch& scratch = scratch_[lane];
    float* const of_runs = run_norms_.data() + lane * RunBatch::max_edges * num_columns;
    float* const total = totals_.data() + lane * num_columns;
    TurnRuns runs(turn, lists_);
    while (runs.next(scratch.batch)) {
      if (lists_.index_bytes == 4) {
        find<std::uint32_t>(scratch, of_runs);
      } else {
        find<std::int64_t>(scratch, of_runs);
      }
      for (std::size_t number = 0; number < scratch.batch.num_runs; ++number) {
        const EdgeRun& run = scratch.batch.runs[number];
        const float* of_row = of_runs + number * num_columns;
        if (!(run.is_first && run.is_last)) {
          if (run.is_first) std::fill_n(total, num_columns, 0.0F);
          merge(total, of_row);
          if (!run.is_last) continue;
          of_row = total;
        }
        const bool is_head = turn.has_head && run.row == turn.begin_row;
        merge(is_head ? heads_.data() + turn.number * num_columns : norms_of(run.row), of_row);
      }
    }
  }

  void add_head(std::size_t row, std::size_t turn) { merge(norms_of(row), heads_.data() + turn * norms_.num_columns); }

 private:
  template <typename Index>
  void find(NormScratch& scratch, float* of_runs) const {
    with_instructions(instructions_, [&](auto set) {
      set.run(RunNorms<set.lanes, Index>{source_scores_, target_scores_, negative_slope_, scratch, of_runs});
    });
  }

  void merge(float* to, const float* from) const {
    run_with(instructions_, MergeNorms{to, from, norms_.num_columns / 2});
  }

  [[nodiscard]] float* norms_of(std::size_t row) const { return norms_.data + row * norms_.stride; }

  const StreamedLists& lists_;
  const Matrix<const float>& source_scores_;
  const Matrix<const float>& target_scores_;
  float negative_slope_;
  const Matrix<float>& norms_;
  InstructionSet instructions_;
  std::vector<NormScratch> scratch_;  // by lane
  std::vector<float> run_norms_;      // by lane
  std::vector<float> totals_;         // by lane: of a row with several runs
  std::vector<float> heads_;          // by turn: of the row that began earlier
};

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

}  // namespace

void add_attention_norms(const StreamedLists& lists, const Matrix<const float>& source_scores,
                         const Matrix<const float>& target_scores, float negative_slope, const Matrix<float>& norms,
                         unsigned num_threads, InstructionSet instructions) {
  ListPieces pieces(lists, source_scores.num_rows, instructions);
  const std::size_t num_heads = source_scores.num_columns;
  require(num_heads > 0 && target_scores.num_columns == num_heads && norms.num_columns == 2 * num_heads,
          "attention norms: scores must have a column per head, and norms must have two");
  require(target_scores.num_rows == lists.num_rows() && norms.num_rows == lists.num_rows(),
          "attention norms: target scores and norms must have the rows of the lists");
  require(norms.num_rows <= 1 || norms.stride >= norms.num_columns, "attention norms: rows of norms must not overlap");
  NormSumming summing(lists, source_scores, target_scores, negative_slope, norms, pieces.num_turns(),
                      pieces.num_lanes(num_threads), instructions);
  pieces.share(num_threads, [&](const PieceTurn& turn, std::size_t lane) { summing.sum(turn, lane); });
  pieces.for_each_head([&](std::size_t row, std::size_t turn) { summing.add_head(row, turn); });
}

}  // namespace diskhop
