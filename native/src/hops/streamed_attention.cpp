#include "diskhop/hops/streamed_attention.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hops/edge_runs.hpp"
#include "hops/list_pieces.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vector_exp.hpp"

namespace diskhop {
namespace {

/// Memory of a thread, and the batch in it.
struct AttendedBatch {
  AttendedBatch(std::size_t num_heads, std::size_t num_columns)
      : exponentials(num_heads * RunBatch::max_edges), totals(num_columns) {}

  RunBatch runs;
  std::array<std::size_t, RunBatch::max_edges> places{};  // of the sources' rows in the block
  std::array<float*, RunBatch::max_edges> to{};           // where the sums of each run's row belong
  std::vector<float> exponentials;                        // (heads, edges)
  std::vector<float> totals;                              // of a row with several runs
};

/// Finds the rows of a batch's edges, and exp(score - largest score) for each head.
template <std::size_t lanes, typename Index>
struct ScoreBatch {
  const Block& block;
  std::span<const AttendedHead> heads;
  const AttentionTargets& targets;
  AttendedBatch& batch;
  std::size_t edges_ahead;

  [[gnu::always_inline]] void operator()() const {
    find_places();
    float* exponentials = batch.exponentials.data();
    for (const AttendedHead& head : heads) {
      for (std::size_t run = 0; run < batch.runs.num_runs; ++run) score_run(batch.runs.runs[run], head, exponentials);
      for (std::size_t edge = 0; edge < batch.runs.num_edges; edge += lanes) {
        // Values beyond the last edge are of earlier batches, and of no use.
        Register<lanes> values;
        load_register<lanes>(exponentials + edge, lanes, values);
        exp_nonpositive(values);
        store_register<lanes>(exponentials + edge, lanes, values);
      }
      exponentials += RunBatch::max_edges;
    }
  }

  [[gnu::always_inline]] void find_places() const {
    // A copy: by reference, the compiler must assume that the places change it.
    const Block rows = block;
    const auto* const indices = reinterpret_cast<const Index*>(batch.runs.indices);
    for (std::size_t edge = 0; edge < batch.runs.num_edges; ++edge) {
      prefetch_columns(reinterpret_cast<std::uintptr_t>(rows.data) +
                           rows.place(static_cast<std::size_t>(indices[edge + edges_ahead])) * sizeof(float),
                       rows.num_columns * sizeof(float));
      batch.places[edge] = rows.place(static_cast<std::size_t>(indices[edge]));
    }
  }

  [[gnu::always_inline]] void score_run(const EdgeRun& run, const AttendedHead& head, float* exponentials) const {
    const float of_target = targets.scores.data[run.row * targets.scores.stride + head.head];
    const float largest = targets.norms.data[run.row * targets.norms.stride + head.head];
    const float slope = targets.negative_slope;
    const float* const of_sources = block.data + head.score_column;
    for (std::size_t edge = run.first; edge < run.first + run.num_edges; ++edge) {
      // As a vector, scores above and below zero take no branch, which no thread could predict.
      Quad score{of_sources[batch.places[edge]] + of_target};
      score = score > 0 ? score : score * slope;
      exponentials[edge] = score[0] - largest;
    }
  }
};

/// Columns of a head that are summed at once: num_quads * 4 are read, num_columns are added.
struct HeadColumns {
  const float* rows = nullptr;          // in the block's first row
  const float* exponentials = nullptr;  // of the head
  std::size_t norm_column = 0;          // of the sums of exponentials
  std::size_t out_column = 0;
  std::size_t num_columns = 0;
};

template <std::size_t lanes, std::size_t num_quads>
struct SumAttended {
  const AttendedBatch& batch;
  const AttentionTargets& targets;
  const HeadColumns& columns;
  float* totals;

  [[gnu::always_inline]] void operator()() const {
    for (std::size_t number = 0; number < batch.runs.num_runs; ++number) {
      const EdgeRun& run = batch.runs.runs[number];
      ColumnSums<lanes, num_quads> sums = sum_run(run);
      if (!run.is_first) {
        ColumnSums<lanes, num_quads> total;
        total.add(totals);
        total.add(sums);
        sums = total;
      }
      if (run.is_last) {
        add_to(batch.to[number] + columns.out_column, sums);
      } else {
        sums.put(totals);
      }
    }
  }

  [[gnu::always_inline]] ColumnSums<lanes, num_quads> sum_run(const EdgeRun& run) const {
    const float inverse = 1 / targets.norms.data[run.row * targets.norms.stride + columns.norm_column];
    const float* const rows = columns.rows;
    const float* const exponentials = columns.exponentials;
    ColumnSums<lanes, num_quads> sums;
    for (std::size_t edge = run.first; edge < run.first + run.num_edges; ++edge) {
      sums.add_times(rows + batch.places[edge], exponentials[edge] * inverse);
    }
    return sums;
  }

  [[gnu::always_inline]] void add_to(float* to, const ColumnSums<lanes, num_quads>& sums) const {
    if (columns.num_columns == num_quads * quad_floats) {
      ColumnSums<lanes, num_quads> all;
      all.add(to);
      all.add(sums);
      return all.put(to);
    }
    float values[num_quads * quad_floats];
    sums.put(values);
    for (std::size_t column = 0; column < columns.num_columns; ++column) to[column] += values[column];
  }
};

using SumFunction = void (*)(const AttendedBatch&, const AttentionTargets&, const HeadColumns&, float*, InstructionSet);

template <std::size_t num_quads>
void sum_attended(const AttendedBatch& batch, const AttentionTargets& targets, const HeadColumns& columns,
                  float* totals, InstructionSet instructions) {
  with_instructions(instructions,
                    [&](auto set) { set.run(SumAttended<set.lanes, num_quads>{batch, targets, columns, totals}); });
}

template <std::size_t... quads>
constexpr std::array<SumFunction, max_quads> functions_of(std::index_sequence<quads...> /*one less than quads*/) {
  return {&sum_attended<quads + 1>...};
}

std::size_t whole_quads(std::size_t num_columns) { return (num_columns + quad_floats - 1) / quad_floats; }

/// Number of columns of all heads, each in whole quads.
std::size_t num_total_columns(std::span<const AttendedHead> heads) {
  std::size_t num_columns = 0;
  for (const AttendedHead& head : heads) num_columns += whole_quads(head.num_columns) * quad_floats;
  return num_columns;
}

/// Sums of one call.
class AttendedSumming {
 public:
  AttendedSumming(const StreamedLists& lists, const Block& block, std::span<const AttendedHead> heads,
                  const AttentionTargets& targets, const Matrix<float>& out, std::size_t num_turns,
                  std::size_t num_lanes, InstructionSet instructions)
      : lists_(lists),
        block_(block),
        heads_(heads),
        targets_(targets),
        out_(out),
        instructions_(instructions),
        batches_(num_lanes, AttendedBatch(heads.size(), num_total_columns(heads))),
        first_rows_(num_turns * out.num_columns) {}

  void sum(const PieceTurn& turn, std::size_t lane, std::size_t edges_ahead) {
    AttendedBatch& batch = batches_[lane];
    TurnRuns runs(turn, lists_);
    while (runs.next(batch.runs)) {
      for (std::size_t number = 0; number < batch.runs.num_runs; ++number) {
        const std::size_t row = batch.runs.runs[number].row;
        const bool is_head = turn.has_head && row == turn.begin_row;
        batch.to[number] =
            is_head ? first_rows_.data() + turn.number * out_.num_columns : out_.data + row * out_.stride;
      }
      if (lists_.index_bytes == 4) {
        score<std::uint32_t>(batch, edges_ahead);
      } else {
        score<std::int64_t>(batch, edges_ahead);
      }
      sum_heads(batch);
    }
  }

  void add_head(std::size_t row, std::size_t turn) {
    const float* const from = first_rows_.data() + turn * out_.num_columns;
    float* const to = out_.data + row * out_.stride;
    for (const AttendedHead& head : heads_) {
      for (std::size_t column = head.out_column; column < head.out_column + head.num_columns; ++column) {
        to[column] += from[column];
      }
    }
  }

 private:
  template <typename Index>
  void score(AttendedBatch& batch, std::size_t edges_ahead) const {
    with_instructions(instructions_, [&](auto set) {
      set.run(ScoreBatch<set.lanes, Index>{block_, heads_, targets_, batch, edges_ahead});
    });
  }

  void sum_heads(AttendedBatch& batch) const {
    static constexpr auto functions = functions_of(std::make_index_sequence<max_quads>());
    float* totals = batch.totals.data();
    for (std::size_t number = 0; number < heads_.size(); ++number) {
      const AttendedHead& head = heads_[number];
      for (std::size_t column = 0; column < head.num_columns; column += max_quads * quad_floats) {
        const HeadColumns columns{
            .rows = block_.data + head.first_column + column,
            .exponentials = batch.exponentials.data() + number * RunBatch::max_edges,
            .norm_column = targets_.scores.num_columns + head.head,
            .out_column = head.out_column + column,
            .num_columns = std::min(head.num_columns - column, max_quads * quad_floats),
        };
        const std::size_t num_quads = whole_quads(columns.num_columns);
        functions[num_quads - 1](batch, targets_, columns, totals, instructions_);
        totals += num_quads * quad_floats;
      }
    }
  }

  const StreamedLists& lists_;
  const Block& block_;
  std::span<const AttendedHead> heads_;
  const AttentionTargets& targets_;
  const Matrix<float>& out_;
  InstructionSet instructions_;
  std::vector<AttendedBatch> batches_;  // by lane
  std::vector<float> first_rows_;       // by turn: of the row that began earlier
};

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

/// Whether columns [first, first + count) are among num_columns.
bool are_columns(std::size_t first, std::size_t count, std::size_t num_columns) {
  return first <= num_columns && count <= num_columns - first;
}

void check_heads(std::span<const AttendedHead> heads, const Block& block, std::size_t num_heads,
                 std::size_t out_columns) {
  for (const AttendedHead& head : heads) {
    require(head.head < num_heads, "attended rows: the head must be one of the target scores");
    require(head.score_column < block.num_columns, "attended rows: the score's column must be one of the block");
    require(are_columns(head.first_column, head.num_columns, block.num_columns) &&
                are_columns(head.first_column, whole_quads(head.num_columns) * quad_floats, block.num_columns),
            "attended rows: columns of a head, rounded up to a multiple of 4, must be in the block");
    require(are_columns(head.out_column, head.num_columns, out_columns),
            "attended rows: columns of a head must be in out");
  }
}

}  // namespace

void add_attended_rows(const StreamedLists& lists, const Block& block, std::span<const AttendedHead> heads,
                       const AttentionTargets& targets, const Matrix<float>& out, unsigned num_threads,
                       PrefetchDistance& edges_ahead, InstructionSet instructions) {
  ListPieces pieces(lists, block.num_rows, instructions);
  require(targets.norms.num_columns == 2 * targets.scores.num_columns,
          "attended rows: norms must have two columns per head");
  require(targets.scores.num_rows == lists.num_rows() && targets.norms.num_rows == lists.num_rows() &&
              out.num_rows == lists.num_rows(),
          "attended rows: target scores, norms and out must have the rows of the lists");
  require(out.num_rows <= 1 || out.stride >= out.num_columns, "attended rows: rows of out must not overlap");
  check_heads(heads, block, targets.scores.num_columns, out.num_columns);
  AttendedSumming summing(lists, block, heads, targets, out, pieces.num_turns(), pieces.num_lanes(num_threads),
                          instructions);
  pieces.share(num_threads, [&](const PieceTurn& turn, std::size_t lane) {
    const PrefetchDistance::Turn ahead = edges_ahead.begin();
    summing.sum(turn, lane, ahead.edges_ahead);
    edges_ahead.end(ahead, turn.num_edges());
  });
  pieces.for_each_head([&](std::size_t row, std::size_t turn) { summing.add_head(row, turn); });
}

}  // namespace diskhop
