#include "diskhop/nn/attention.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/turns.hpp"
#include "diskhop/base/random.hpp"
#include "nn/attention_lists.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vector_draws.hpp"
#include "simd/vector_exp.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Heads as lanes of a vector: all heads if there are 1 or 4, otherwise eight at a time, the last vector being partly
// filled.
constexpr std::size_t most_heads = 8;

template <std::size_t heads>
struct LanesOf {
  using Type [[gnu::vector_size(heads * sizeof(float))]] = float;
  using Bits [[gnu::vector_size(heads * sizeof(float))]] = std::uint32_t;
};
template <>
struct LanesOf<1> {
  using Type = float;
  using Bits = std::uint32_t;
};
template <std::size_t heads>
using Lanes = typename LanesOf<heads>::Type;
template <std::size_t heads>
using LaneBits = typename LanesOf<heads>::Bits;

template <std::size_t heads>
[[gnu::always_inline]] inline void load_lanes(const float* from, std::size_t count, Lanes<heads>& values) {
  if constexpr (heads == most_heads) {
    load_register<heads>(from, count, values);
  } else {
    std::memcpy(&values, from, sizeof values);
  }
}

template <std::size_t heads>
[[gnu::always_inline]] inline void store_lanes(float* to, std::size_t count, const Lanes<heads>& values) {
  if constexpr (heads == most_heads) {
    store_register<heads>(to, count, values);
  } else {
    std::memcpy(to, &values, sizeof values);
  }
}

/// Calls step.run<lanes>(target, first head, number of heads) for the targets [begin, end).
template <std::size_t heads, typename Step>
[[gnu::always_inline]] inline void run_head_group(const Step& step, std::size_t head, std::size_t count,
                                                  std::size_t begin, std::size_t end) {
  for (std::size_t target = begin; target < end; ++target) step.template run<heads>(target, head, count);
}

template <typename Step>
[[gnu::always_inline]] inline void run_heads(const Step& step, std::size_t num_heads, std::size_t begin,
                                             std::size_t end) {
  if (num_heads == 1) return run_head_group<1>(step, 0, 1, begin, end);
  if (num_heads == 4) return run_head_group<4>(step, 0, 4, begin, end);
  if (num_heads == most_heads) return run_head_group<most_heads>(step, 0, most_heads, begin, end);
  for (std::size_t head = 0; head < num_heads; head += most_heads) {
    run_head_group<most_heads>(step, head, std::min(most_heads, num_heads - head), begin, end);
  }
}

// -- forward --

/// Subtracts the largest score of a target from those at first .. last.
template <std::size_t heads>
[[gnu::always_inline]] inline void subtract(const Matrix<float>& attention, float* first, const float* last,
                                            std::size_t count, const Lanes<heads>& largest) {
  for (float* slot = first; slot != last; slot += attention.stride) {
    Lanes<heads> score;
    load_lanes<heads>(slot, count, score);
    score -= largest;
    store_lanes<heads>(slot, count, score);
  }
}

/// Computes scores, minus the largest of each target.
struct ScoreStep {
  const NeighborLists& lists;
  const AttentionScores& scores;
  const Matrix<float>& attention;

  template <std::size_t heads>
  [[gnu::always_inline]] void run(std::size_t target, std::size_t head, std::size_t count) const {
    const auto end_edge = static_cast<std::size_t>(lists.indptr[target + 1]);
    const std::size_t end = slots_end(lists, end_edge);
    Lanes<heads> of_target;
    load_lanes<heads>(scores.of_targets.data + target * scores.of_targets.stride + head, count, of_target);
    Lanes<heads> largest = Lanes<heads>{} - infinity;
    float* const first = attention.data + first_slot(lists, target) * attention.stride + head;
    float* slot = first;
    for (auto edge = static_cast<std::size_t>(lists.indptr[target]); edge < end; ++edge) {
      const std::size_t row = row_of_slot(lists, target, edge, end_edge);
      Lanes<heads> score;
      load_lanes<heads>(scores.of_sources.data + row * scores.of_sources.stride + head, count, score);
      score += of_target;
      score = score > 0 ? score : score * scores.negative_slope;
      // A self-loop of the graph is no slot of the softmax.
      if (lists.has_loops && row == target && edge < end_edge) score = Lanes<heads>{} - infinity;
      largest = score <= largest ? largest : score;  // NaN reaches the result through the sum
      store_lanes<heads>(slot, count, score);
      slot += attention.stride;
    }
    subtract<heads>(attention, first, slot, count, largest);
  }
};

/// Copies scores that slots have of their own, minus the largest of each target.
struct SlotScoreStep {
  const NeighborLists& lists;
  const Matrix<const float>& scores;
  const Matrix<float>& attention;

  template <std::size_t heads>
  [[gnu::always_inline]] void run(std::size_t target, std::size_t head, std::size_t count) const {
    const std::size_t first = first_slot(lists, target), last = first_slot(lists, target + 1);
    Lanes<heads> largest = Lanes<heads>{} - infinity;
    for (std::size_t slot = first; slot < last; ++slot) {
      Lanes<heads> score;
      load_lanes<heads>(scores.data + slot * scores.stride + head, count, score);
      largest = score <= largest ? largest : score;  // NaN reaches the result through the sum
      store_lanes<heads>(attention.data + slot * attention.stride + head, count, score);
    }
    float* const values = attention.data + head;
    subtract<heads>(attention, values + first * attention.stride, values + last * attention.stride, count, largest);
  }
};

/// Computes exponentials divided by their sum, with the sign set where dropout drops.
struct NormalizeStep {
  const NeighborLists& lists;
  const AttentionDropout& dropout;
  const Matrix<float>& attention;

  template <std::size_t heads>
  [[gnu::always_inline]] void run(std::size_t target, std::size_t head, std::size_t count) const {
    float* const first = attention.data + first_slot(lists, target) * attention.stride + head;
    float* const last = attention.data + first_slot(lists, target + 1) * attention.stride + head;
    Lanes<heads> sum{};
    for (const float* slot = first; slot != last; slot += attention.stride) {
      Lanes<heads> value;
      load_lanes<heads>(slot, count, value);
      sum += value;
    }
    const std::uint64_t num_dropped = static_cast<std::uint64_t>(std::llround(dropout.probability * 0x1p32));
    const std::uint64_t key = absorb(dropout.seed, target);
    std::uint32_t first_counters[heads];
    for (std::size_t lane = 0; lane < heads; ++lane) first_counters[lane] = static_cast<std::uint32_t>(head + lane);
    LaneBits<heads> counters;
    std::memcpy(&counters, first_counters, sizeof counters);
    for (float* slot = first; slot != last; slot += attention.stride) {
      Lanes<heads> value;
      load_lanes<heads>(slot, count, value);
      value /= sum;
      if (num_dropped > 0) {
        LaneBits<heads> draws;
        draw_words(key, counters, draws);
        value = draws <= static_cast<std::uint32_t>(num_dropped - 1) ? -value : value;
        counters += static_cast<std::uint32_t>(attention.num_columns);
      }
      store_lanes<heads>(slot, count, value);
    }
  }
};

template <std::size_t lanes, typename Score>
struct SoftmaxTask {
  Score score;
  NormalizeStep normalize;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    const Matrix<float>& attention = score.attention;
    run_heads(score, attention.num_columns, begin, end);
    // Rows of all heads of all these targets are contiguous.
    float* value = attention.data + first_slot(score.lists, begin) * attention.stride;
    const float* const last = attention.data + first_slot(score.lists, end) * attention.stride;
    while (value != last) {
      const auto count = std::min(lanes, static_cast<std::size_t>(last - value));
      Register<lanes> values;
      load_register<lanes>(value, count, values);
      exp_nonpositive(values);
      store_register<lanes>(value, count, values);
      value += count;
    }
    run_heads(normalize, attention.num_columns, begin, end);
  }
};

// -- backward --

/// Computes gradients of the scores by slot, and those of the targets' scores.
struct GradStep {
  const NeighborLists& lists;
  const AttentionScores& scores;
  const Matrix<const float>& attention;
  const Matrix<const float>& grad_attention;
  const Matrix<float>& grad_scores;  // (slots, heads)
  const Matrix<float>& grad_of_targets;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    run_heads(*this, attention.num_columns, begin, end);
  }

  // With attention a and its gradient g, the score's gradient is a (g - the sum of a g), times the slope.
  template <std::size_t heads>
  [[gnu::always_inline]] void run(std::size_t target, std::size_t head, std::size_t count) const {
    const std::size_t stride = attention.stride;
    const std::size_t first = first_slot(lists, target) * stride + head;
    const std::size_t last = first_slot(lists, target + 1) * stride + head;
    Lanes<heads> sum{};
    for (std::size_t slot = first; slot != last; slot += stride) {
      Lanes<heads> value;
      Lanes<heads> grad;
      load_lanes<heads>(attention.data + slot, count, value);
      load_lanes<heads>(grad_attention.data + slot, count, grad);
      sum += (value < 0 ? -value : value) * grad;
    }
    Lanes<heads> of_target;
    load_lanes<heads>(scores.of_targets.data + target * scores.of_targets.stride + head, count, of_target);
    Lanes<heads> total{};
    const auto end_edge = static_cast<std::size_t>(lists.indptr[target + 1]);
    auto edge = static_cast<std::size_t>(lists.indptr[target]);
    for (std::size_t slot = first; slot != last; slot += stride, ++edge) {
      Lanes<heads> value;
      Lanes<heads> grad;
      Lanes<heads> score;
      load_lanes<heads>(attention.data + slot, count, value);
      load_lanes<heads>(grad_attention.data + slot, count, grad);
      const std::size_t row = row_of_slot(lists, target, edge, end_edge);
      load_lanes<heads>(scores.of_sources.data + row * scores.of_sources.stride + head, count, score);
      score += of_target;
      grad = (value < 0 ? -value : value) * (grad - sum);
      grad = score > 0 ? grad : grad * scores.negative_slope;
      total += grad;
      store_lanes<heads>(grad_scores.data + slot, count, grad);
    }
    store_lanes<heads>(grad_of_targets.data + target * grad_of_targets.stride + head, count, total);
  }
};

/// Computes gradients of scores that slots have of their own.
struct SlotGradStep {
  const NeighborLists& lists;
  const Matrix<const float>& attention;
  const Matrix<const float>& grad_attention;
  const Matrix<float>& grad_scores;  // (slots, heads)

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    run_heads(*this, attention.num_columns, begin, end);
  }

  template <std::size_t heads>
  [[gnu::always_inline]] void run(std::size_t target, std::size_t head, std::size_t count) const {
    const std::size_t stride = attention.stride;
    const std::size_t first = first_slot(lists, target) * stride + head;
    const std::size_t last = first_slot(lists, target + 1) * stride + head;
    Lanes<heads> value;
    Lanes<heads> grad;
    Lanes<heads> sum{};
    for (std::size_t slot = first; slot != last; slot += stride) {
      load_lanes<heads>(attention.data + slot, count, value);
      load_lanes<heads>(grad_attention.data + slot, count, grad);
      sum += (value < 0 ? -value : value) * grad;
    }
    for (std::size_t slot = first; slot != last; slot += stride) {
      load_lanes<heads>(attention.data + slot, count, value);
      load_lanes<heads>(grad_attention.data + slot, count, grad);
      grad = (value < 0 ? -value : value) * (grad - sum);
      store_lanes<heads>(grad_scores.data + slot, count, grad);
    }
  }
};

/// Adds the slots' gradients to those of the sources that a lane owns.
struct SpreadStep {
  const NeighborLists& lists;
  const Matrix<float>& grad_scores;
  const Matrix<float>& grad_of_sources;
  RowShare share;

  [[gnu::always_inline]] void operator()() const {
    share.clear(grad_of_sources);
    run_heads(*this, grad_scores.num_columns, 0, lists.num_targets());
  }

  template <std::size_t heads>
  [[gnu::always_inline]] void run(std::size_t target, std::size_t head, std::size_t count) const {
    const auto end_edge = static_cast<std::size_t>(lists.indptr[target + 1]);
    const std::size_t end = slots_end(lists, end_edge);
    const float* slot = grad_scores.data + first_slot(lists, target) * grad_scores.stride + head;
    for (auto edge = static_cast<std::size_t>(lists.indptr[target]); edge < end; ++edge) {
      const std::size_t row = row_of_slot(lists, target, edge, end_edge);
      if (share.owns(row)) {
        float* to = grad_of_sources.data + row * grad_of_sources.stride + head;
        Lanes<heads> sum;
        Lanes<heads> grad;
        load_lanes<heads>(to, count, sum);
        load_lanes<heads>(slot, count, grad);
        sum += grad;
        store_lanes<heads>(to, count, sum);
      }
      slot += grad_scores.stride;
    }
  }
};

// -- checks and threads --

void check_scores(const NeighborLists& lists, const AttentionScores& scores, const Matrix<const float>& attention) {
  check_lists(lists, {0, lists.num_targets()}, scores.of_sources.num_rows);
  check_slots(lists, attention);
  require_attention(scores.of_targets.num_rows == lists.num_targets(), "there must be a score for each target");
  require_attention(
      scores.of_sources.num_columns == attention.num_columns && scores.of_targets.num_columns == attention.num_columns,
      "scores must have a column for each head");
}

template <typename Score>
void share_softmax(const Score& score, const NormalizeStep& normalize, unsigned num_threads,
                   InstructionSet instructions) {
  const NeighborLists& lists = score.lists;
  const std::size_t num_shares = useful_threads(num_threads, lists.num_slots() * score.attention.num_columns);
  with_instructions(instructions, [&](auto set) {
    const SoftmaxTask<set.lanes, Score> task{score, normalize};
    share_targets({0, lists.num_targets()}, num_shares, [&](TargetRange turn) { set.run(task, turn.begin, turn.end); });
  });
}

/// Sources are not read, so they are not checked.
void check_slot_scores(const NeighborLists& lists, const Matrix<const float>& one, const Matrix<const float>& other) {
  require_attention(!lists.has_loops, "scores by slot need lists without loops");
  check_indptr(lists, {0, lists.num_targets()});
  check_slots(lists, one);
  check_slots(lists, other);
  require_attention(one.num_columns == other.num_columns, "scores and attention must have the same number of heads");
}

}  // namespace

void attention(const NeighborLists& lists, const AttentionScores& scores, const AttentionDropout& dropout,
               const Matrix<float>& attention, unsigned num_threads, InstructionSet instructions) {
  check_scores(lists, scores, as_const(attention));
  require_attention(dropout.probability >= 0 && dropout.probability <= 1, "dropout must be from 0 to 1");
  share_softmax(ScoreStep{lists, scores, attention}, {lists, dropout, attention}, num_threads, instructions);
}

void slot_softmax(const NeighborLists& lists, const Matrix<const float>& scores, const AttentionDropout& dropout,
                  const Matrix<float>& attention, unsigned num_threads, InstructionSet instructions) {
  check_slot_scores(lists, scores, as_const(attention));
  require_attention(dropout.probability >= 0 && dropout.probability <= 1, "dropout must be from 0 to 1");
  share_softmax(SlotScoreStep{lists, scores, attention}, {lists, dropout, attention}, num_threads, instructions);
}

void slot_softmax_backward(const NeighborLists& lists, const Matrix<const float>& attention,
                           const Matrix<const float>& grad_attention, const Matrix<float>& grad_scores,
                           unsigned num_threads, InstructionSet instructions) {
  check_slot_scores(lists, attention, as_const(grad_scores));
  check_slot_scores(lists, grad_attention, as_const(grad_scores));
  const SlotGradStep task{lists, attention, grad_attention, grad_scores};
  share_targets({0, lists.num_targets()}, useful_threads(num_threads, lists.num_slots() * attention.num_columns),
                [&](TargetRange turn) { run_with(instructions, task, turn.begin, turn.end); });
}

void attention_backward(const NeighborLists& lists, const AttentionScores& scores, const Matrix<const float>& attention,
                        const Matrix<const float>& grad_attention, const Matrix<float>& grad_of_sources,
                        const Matrix<float>& grad_of_targets, unsigned num_threads, InstructionSet instructions) {
  check_scores(lists, scores, attention);
  check_slots(lists, grad_attention);
  require_attention(
      grad_attention.num_columns == attention.num_columns && grad_of_sources.num_rows == scores.of_sources.num_rows &&
          grad_of_sources.num_columns == attention.num_columns && grad_of_targets.num_rows == lists.num_targets() &&
          grad_of_targets.num_columns == attention.num_columns,
      "gradients must have the sizes of what they are gradients of");
  const std::size_t num_values = lists.num_slots() * attention.num_columns;
  const std::size_t num_lanes = useful_threads(num_threads, num_values);
  const auto memory = std::make_unique_for_overwrite<float[]>(num_values);
  const Matrix<float> grad_scores{memory.get(), lists.num_slots(), attention.num_columns, attention.num_columns};
  const GradStep grad{lists, scores, attention, grad_attention, grad_scores, grad_of_targets};
  share_targets({0, lists.num_targets()}, num_lanes,
                [&](TargetRange turn) { run_with(instructions, grad, turn.begin, turn.end); });
  share_turns(num_lanes, num_lanes, [&](std::size_t turn, std::size_t) {
    run_with(instructions, SpreadStep{lists, grad_scores, grad_of_sources, {turn, num_lanes}});
  });
}

}  // namespace diskhop
