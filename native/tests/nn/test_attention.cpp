#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/turns.hpp"
#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/nn/attention.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vector_exp.hpp"
#include "values.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::same_bits;

namespace {

template <std::size_t lanes>
struct ExpTask {
  [[gnu::always_inline]] void operator()(float* value) const {
    Register<lanes> values = Register<lanes>{} + *value;
    exp_nonpositive(values);
    *value = values[lanes - 1];
  }
};

float exp_of(float value, InstructionSet instructions) {
  with_instructions(instructions, [&](auto set) { set.run(ExpTask<set.lanes>{}, &value); });
  return value;
}

void test_exp_is_close_and_the_same_everywhere() {
  double worst = 0;
  for (float x = 0; x >= smallest_exponent; x = x * 1.0009F - 1e-4F) {
    const float value = exp_of(x, InstructionSet::portable);
    worst = std::max(worst, std::abs(static_cast<double>(value) / std::exp(static_cast<double>(x)) - 1));
    for (const InstructionSet instructions : supported_instruction_sets()) {
      check(std::bit_cast<std::uint32_t>(exp_of(x, instructions)) == std::bit_cast<std::uint32_t>(value),
            "exp gives the same bits with every instruction set");
    }
  }
  check(worst < 0x1p-22, "exp is within 2^-22, but was off by " + std::to_string(worst * 0x1p22) + " times that");
  check(exp_of(0, best_instruction_set()) == 1, "exp of 0 is 1");
  check(exp_of(-88, best_instruction_set()) == 0, "exp of what is too small is 0");
  check(exp_of(-std::numeric_limits<float>::infinity(), best_instruction_set()) == 0, "exp of -infinity is 0");
  check(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN(), best_instruction_set())), "no number stays none");
}

/// Lists with an isolated target, a long one, loops and duplicates; and values for all arguments.
struct Case {
  std::vector<std::int32_t> indptr{0};
  std::vector<std::int32_t> sources;
  std::size_t num_sources;
  std::size_t heads;
  std::size_t dim;
  bool has_loops = true;

  Case(std::size_t num_targets, std::size_t num_sources_, std::size_t heads_, std::size_t dim_)
      : num_sources(num_sources_), heads(heads_), dim(dim_) {
    for (std::size_t target = 0; target < num_targets; ++target) {
      const std::size_t degree = target == 1 ? 500 : target % 9;
      for (std::size_t edge = 0; edge < degree; ++edge) {
        const auto draw =
            scale32(draw32(target, static_cast<std::uint32_t>(edge)), static_cast<std::uint32_t>(num_sources));
        sources.push_back(static_cast<std::int32_t>(edge % 5 == 4 ? target : draw));
      }
      indptr.push_back(static_cast<std::int32_t>(sources.size()));
    }
  }

  [[nodiscard]] NeighborLists lists() const { return {indptr, sources, has_loops}; }
};

std::vector<float> random_values(std::size_t count, std::uint64_t key) {
  std::vector<float> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = static_cast<float>(draw32(key, static_cast<std::uint32_t>(index))) * 0x1p-30F - 2;
  }
  return values;
}

template <typename Value>
Matrix<Value> matrix(std::vector<std::remove_const_t<Value>>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

/// Returns all results of all kernels.
std::vector<float> run_all(const Case& problem, bool shares_rows, double dropout, unsigned num_threads,
                           InstructionSet instructions) {
  const NeighborLists lists = problem.lists();
  const std::size_t heads = problem.heads;
  const std::size_t num_targets = lists.num_targets();
  const std::size_t num_slots = lists.num_slots();
  const std::size_t columns = shares_rows ? problem.dim : heads * problem.dim;
  auto of_sources = random_values(problem.num_sources * heads, 1);
  auto of_targets = random_values(num_targets * heads, 2);
  auto rows = random_values(problem.num_sources * columns, 3);
  auto grad = random_values(num_targets * heads * problem.dim, 4);
  std::vector<Bfloat16> narrow_rows(rows.size());
  for (std::size_t index = 0; index < rows.size(); ++index) {
    narrow_rows[index].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rows[index]) >> 16);
  }
  std::vector<float> weights(num_slots * heads), grad_weights(num_slots * heads), out(grad.size()),
      narrow_out(grad.size()), grad_rows(rows.size()), grad_sources(of_sources.size()), grad_targets(of_targets.size());
  const AttentionScores scores{matrix<const float>(of_sources, heads), matrix<const float>(of_targets, heads), 0.2F};
  const AttentionDropout drop{dropout, 7};
  attention(lists, scores, drop, matrix<float>(weights, heads), num_threads, instructions);
  const auto attended = matrix<const float>(weights, heads);
  const SlotWeights factors{.values = attended, .scale = drop.scale()};
  const std::size_t middle = num_targets / 3;
  const std::size_t width = heads * problem.dim;
  for (const TargetRange range : {TargetRange{0, middle}, TargetRange{middle, num_targets}}) {
    const std::size_t count = range.end - range.begin;
    const Matrix<float> part{out.data() + range.begin * width, count, width, width};
    const Matrix<float> narrow_part{narrow_out.data() + range.begin * width, count, width, width};
    const Matrix<const float> grad_part{grad.data() + range.begin * width, count, width, width};
    attend(lists, range, factors, matrix<const float>(rows, columns), part, num_threads, instructions);
    attend(lists, range, factors, matrix<const Bfloat16>(narrow_rows, columns), narrow_part, num_threads, instructions);
    attend_backward_attention(lists, range, factors, matrix<const float>(rows, columns), grad_part,
                              matrix<float>(grad_weights, heads), num_threads, instructions);
    attend_backward_rows(lists, range, factors, grad_part, matrix<float>(grad_rows, columns), num_threads,
                         instructions);
  }
  attention_backward(lists, scores, attended, matrix<const float>(grad_weights, heads),
                     matrix<float>(grad_sources, heads), matrix<float>(grad_targets, heads), num_threads, instructions);
  std::vector<float> all;
  for (const auto* part : {&weights, &out, &narrow_out, &grad_weights, &grad_rows, &grad_sources, &grad_targets}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  if (!problem.has_loops) {
    // Gradients of weights are any scores.
    slot_softmax(lists, matrix<const float>(grad_weights, heads), drop, matrix<float>(weights, heads), num_threads,
                 instructions);
    all.insert(all.end(), weights.begin(), weights.end());
    std::vector<float> grad_scores(weights.size());
    slot_softmax_backward(lists, attended, matrix<const float>(grad_weights, heads), matrix<float>(grad_scores, heads),
                          num_threads, instructions);
    all.insert(all.end(), grad_scores.begin(), grad_scores.end());
  }
  return all;
}

void test_no_bit_depends_on_threads_or_instructions() {
  for (const auto& [heads, dim] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {1, 150}, {2, 9}, {3, 16}, {4, 47}, {8, 1}, {16, 3}, {19, 5}}) {
    Case problem(600, 700, heads, dim);
    for (const bool shares_rows : {false, true}) {
      problem.has_loops = shares_rows == (heads % 2 == 0);
      const double dropout = heads % 2 == 0 ? 0 : 0.5;
      const auto expected = run_all(problem, shares_rows, dropout, 1, InstructionSet::portable);
      check(std::none_of(expected.begin(), expected.end(), [](float value) { return std::isnan(value); }),
            "all values are numbers");
      for (const InstructionSet instructions : supported_instruction_sets()) {
        check(same_bits(run_all(problem, shares_rows, dropout, 1, instructions), expected), "one thread, every set");
      }
      for (const unsigned num_threads : {0U, 3U}) {
        check(same_bits(run_all(problem, shares_rows, dropout, num_threads, best_instruction_set()), expected),
              "any number of threads");
      }
    }
  }
}

void test_attention_adds_up_to_one() {
  const Case problem(50, 80, 4, 1);
  const auto all = run_all(problem, false, 0.5, 2, best_instruction_set());
  const NeighborLists lists = problem.lists();
  for (std::size_t target = 0; target < lists.num_targets(); ++target) {
    for (std::size_t head = 0; head < 4; ++head) {
      double sum = 0;
      const std::size_t first = static_cast<std::size_t>(lists.indptr[target]) + target;
      const std::size_t loop = static_cast<std::size_t>(lists.indptr[target + 1]) + target;
      for (std::size_t slot = first; slot <= loop; ++slot) {
        const float value = std::abs(all[slot * 4 + head]);
        sum += static_cast<double>(value);
        const bool is_own_edge = slot < loop && static_cast<std::size_t>(lists.sources[slot - target]) == target;
        check((value == 0) == is_own_edge, "the graph's own loop, and nothing else, has no attention");
      }
      check(std::abs(sum - 1) < 1e-5, "attention adds up to 1");
    }
  }
}

void test_lists_without_loops() {
  // More targets than sources: they are not rows.
  const std::vector<std::int32_t> indptr{0, 2, 2, 3};
  const std::vector<std::int32_t> sources{1, 0, 1};
  const NeighborLists lists{indptr, sources, false};
  std::vector<float> scores{0, 1, 5}, weights(3), products(3), out(6), grad_rows(4), grad_scores(3);
  slot_softmax(lists, matrix<const float>(scores, 1), {}, matrix<float>(weights, 1), 1);
  check(std::abs(weights[0] + weights[1] - 1) < 1e-6F && weights[2] == 1, "each target's edges add up to 1");
  check(std::abs(weights[1] / weights[0] - std::exp(1.0F)) < 1e-5F, "by the exponential of their scores");
  std::vector<float> ones{1, 0, 0};
  slot_softmax_backward(lists, matrix<const float>(weights, 1), matrix<const float>(ones, 1),
                        matrix<float>(grad_scores, 1), 1);
  check(std::abs(grad_scores[0] - weights[0] * weights[1]) < 1e-6F && grad_scores[0] == -grad_scores[1] &&
            grad_scores[2] == 0,
        "the softmax's gradient");
  std::vector<float> rows{1, 2, 3, 4}, targets{1, -1, 0, 0, 2, 1};
  slot_products(lists, matrix<const float>(rows, 2), matrix<const float>(targets, 2), matrix<float>(products, 1), 1);
  check(products == std::vector<float>{-1, -1, 10}, "products of rows and targets");
  const SlotWeights signed_weights{.values = matrix<const float>(products, 1), .scale = 2, .is_attention = false};
  attend(lists, {0, 3}, signed_weights, matrix<const float>(rows, 2), matrix<float>(out, 2), 1);
  check(out == std::vector<float>{-8, -12, 0, 0, 60, 80}, "negative weights count");
  attend_backward_rows(lists, {0, 3}, signed_weights, matrix<const float>(targets, 2), matrix<float>(grad_rows, 2), 1);
  check(grad_rows == std::vector<float>{-2, 2, 38, 22}, "and in gradients");
  const NeighborLists with_loops{indptr, sources};
  check_throws<std::invalid_argument>(
      [&] { slot_softmax(with_loops, matrix<const float>(scores, 1), {}, matrix<float>(weights, 1), 1); },
      "loops have no scores of their own");
}

void test_bad_sizes_are_refused() {
  const Case problem(3, 5, 2, 4);
  const NeighborLists lists = problem.lists();
  auto rows = random_values(5 * 8, 1);
  auto weights = random_values(lists.num_slots() * 2, 2);
  std::vector<float> out(3 * 8);
  const auto run = [&](const NeighborLists& some, TargetRange range, std::size_t columns) {
    attend(some, range, {.values = matrix<const float>(weights, 2)}, matrix<const float>(rows, columns),
           matrix<float>(out, 8), 1);
  };
  run(lists, {0, 3}, 8);
  check_throws<std::invalid_argument>([&] { run(lists, {0, 4}, 8); }, "a range beyond the targets is refused");
  check_throws<std::invalid_argument>([&] { run(lists, {0, 3}, 5); }, "columns that are not the heads' are refused");
  std::vector<std::int32_t> sources = problem.sources;
  for (const std::int32_t bad : {5, -1}) {
    sources.back() = bad;
    check_throws<std::out_of_range>([&] { run({problem.indptr, sources}, {0, 3}, 8); }, "a source outside is refused");
  }
  std::vector<std::int32_t> indptr = problem.indptr;
  std::swap(indptr[1], indptr[2]);
  check_throws<std::invalid_argument>([&] { run({indptr, problem.sources}, {0, 3}, 8); }, "indptr must ascend");
}

void test_every_turn_is_taken_once() {
  std::vector<int> taken(1000);
  share_turns(taken.size(), 4, [&](std::size_t turn, std::size_t lane) {
    check(lane < 4, "lanes are below the number of threads");
    ++taken[turn];
  });
  check(std::all_of(taken.begin(), taken.end(), [](int count) { return count == 1; }), "every turn is taken once");
}

}  // namespace

int main() {
  test_exp_is_close_and_the_same_everywhere();
  test_no_bit_depends_on_threads_or_instructions();
  test_attention_adds_up_to_one();
  test_lists_without_loops();
  test_bad_sizes_are_refused();
  test_every_turn_is_taken_once();
}
