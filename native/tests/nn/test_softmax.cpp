#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/nn/softmax.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

/// Outputs with exactly the memory that is needed, so that sanitizers see every value out of bounds.
struct Found {
  std::vector<std::int64_t> classes;
  std::vector<float> largest;
  std::vector<float> probabilities;

  Found(const std::vector<float>& logits, std::size_t num_columns, InstructionSet instructions)
      : classes(logits.size() / num_columns), largest(classes.size()), probabilities(logits.size()) {
    const std::size_t num_rows = classes.size();
    softmax_rows({logits.data(), num_rows, num_columns, num_columns},
                 {classes, largest, {probabilities.data(), num_rows, num_columns, num_columns}}, instructions);
  }
  bool operator==(const Found&) const = default;
};

void test_rows_equal_double_precision() {
  for (const std::size_t num_columns : {1, 2, 7, 16, 17, 47, 100}) {
    std::vector<float> logits(40 * num_columns);
    for (std::size_t index = 0; index < logits.size(); ++index) {
      // Differences of these are exact.
      logits[index] = static_cast<float>((index * 7919) % 1000) / 32.0F - 16.0F;
    }
    const Found found(logits, num_columns, InstructionSet::portable);
    for (std::size_t row = 0; row < 40; ++row) {
      const float* const from = logits.data() + row * num_columns;
      const float* const most = std::max_element(from, from + num_columns);
      double sum = 0;
      for (std::size_t column = 0; column < num_columns; ++column)
        sum += std::exp(double{from[column]} - double{*most});
      check(found.classes[row] == most - from, "the class is that of the largest logit");
      for (std::size_t column = 0; column < num_columns; ++column) {
        const double expected = std::exp(double{from[column]} - double{*most}) / sum;
        const double actual = double{found.probabilities[row * num_columns + column]};
        check(std::abs(actual - expected) <= 1e-6 * expected + 1e-30, "probabilities equal double precision");
      }
      const auto best = static_cast<std::size_t>(found.classes[row]);
      check(found.largest[row] == found.probabilities[row * num_columns + best], "the largest is one of them");
    }
    for (const InstructionSet instructions : supported_instruction_sets()) {
      check(Found(logits, num_columns, instructions) == found, "all instruction sets give the same bits");
    }
  }
}

void test_extreme_logits() {
  constexpr float most = std::numeric_limits<float>::max();
  const Found found({most, -most, most}, 3, best_instruction_set());
  check(found.classes[0] == 0, "of equal logits the lowest class counts");
  check(found.probabilities == std::vector<float>{0.5F, 0.0F, 0.5F}, "differences beyond float are probabilities of 0");
}

void test_outputs_of_another_size_are_refused() {
  const std::vector<float> logits(6);
  std::vector<std::int64_t> classes(3);
  check_throws<std::invalid_argument>([&] { softmax_rows({logits.data(), 2, 3, 3}, {classes, {}, {}}); }, "classes");
  check_throws<std::invalid_argument>([&] { softmax_rows({logits.data(), 2, 0, 3}, {}); }, "no columns");
}

}  // namespace

int main() {
  test_rows_equal_double_precision();
  test_extreme_logits();
  test_outputs_of_another_size_are_refused();
  return 0;
}
