#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/nn/split_linear.hpp"
#include "matrices.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::is_near;

namespace {

/// Some value between -1 and 1.
float value_of(std::size_t number) { return static_cast<float>(number * 7919 % 2003) / 1001.0f - 1.0f; }

/// Matrices of their own memory next to one another, with rows some values apart.
struct Parts {
  std::vector<std::vector<float>> memory;
  std::vector<Matrix<float>> written;
  std::vector<Matrix<const float>> read;

  Parts(std::size_t num_rows, const std::vector<std::size_t>& widths, std::size_t gap = 0) {
    for (const std::size_t width : widths) {
      memory.emplace_back(num_rows * (width + gap), -7.0f);
      written.push_back({memory.back().data(), num_rows, width, width + gap});
      read.push_back({memory.back().data(), num_rows, width, width + gap});
    }
  }

  [[nodiscard]] float& at(std::size_t row, std::size_t column) {
    std::size_t part = 0;
    while (column >= written[part].num_columns) column -= written[part++].num_columns;
    return written[part].data[row * written[part].stride + column];
  }

  void fill(std::size_t num_rows, std::size_t num_columns, std::size_t first) {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for (std::size_t column = 0; column < num_columns; ++column) {
        at(row, column) = value_of(first + row * num_columns + column);
      }
    }
  }
};

/// A layer of 37 columns: 30 that are divided, and 7.
struct Case {
  static constexpr std::size_t in_dim = 37;
  static constexpr std::size_t num_divided = 30;

  std::size_t num_rows;
  std::size_t out_dim;
  Parts divided;
  Parts others;
  Parts out;
  std::vector<float> divisors;
  std::vector<float> weight;
  std::vector<float> bias;

  Case(std::size_t rows, std::size_t columns)
      : num_rows(rows),
        out_dim(columns),
        divided(rows, {24, 6}),
        others(rows, {7}, 3),
        out(rows, columns > 5 ? std::vector<std::size_t>{4, columns - 4} : std::vector<std::size_t>{columns}, 2),
        divisors(rows),
        weight(columns * in_dim),
        bias(columns) {
    divided.fill(rows, num_divided, 1);
    others.fill(rows, in_dim - num_divided, 500);
    for (std::size_t row = 0; row < rows; ++row) divisors[row] = static_cast<float>(row % 5 + 1);
    for (std::size_t index = 0; index < weight.size(); ++index) weight[index] = value_of(3 * index + 11);
    for (std::size_t index = 0; index < bias.size(); ++index) bias[index] = value_of(5 * index);
  }

  [[nodiscard]] bool apply(InstructionSet instructions, bool rectifies, unsigned num_threads) {
    const SplitLinear linear({weight.data(), out_dim, in_dim, in_dim}, bias, instructions);
    const std::vector<SplitRows> inputs{{divided.read, divisors}, {others.read, {}}};
    return linear.apply(inputs, rectifies, out.written, num_threads);
  }

  [[nodiscard]] double expected(std::size_t row, std::size_t column) {
    double sum = bias[column];
    for (std::size_t term = 0; term < in_dim; ++term) {
      const bool is_divided = term < num_divided;
      const double value = is_divided ? divided.at(row, term) : others.at(row, term - num_divided);
      sum += value * weight[column * in_dim + term] / (is_divided ? divisors[row] : 1.0f);
    }
    return sum;
  }
};

void test_products_are_those_of_the_joined_rows() {
  for (const InstructionSet instructions : supported_instruction_sets()) {
    for (const std::size_t num_rows : {1, 5, 12, 13, 48, 49, 200}) {
      for (const std::size_t out_dim : {1, 5, 31, 32, 70}) {
        for (const bool rectifies : {false, true}) {
          Case one(num_rows, out_dim);
          check(one.apply(instructions, rectifies, 3), "all results are finite");
          for (std::size_t row = 0; row < num_rows; ++row) {
            for (std::size_t column = 0; column < out_dim; ++column) {
              const double product = one.expected(row, column);
              const float found = one.out.at(row, column);
              check(is_near(found, rectifies && product < 0 ? 0 : product, 1e-5), "a product of the joined rows");
            }
          }
          check(one.out.memory.back().back() == -7.0f, "nothing is written behind a row");
        }
      }
    }
  }
}

void test_bits_do_not_depend_on_the_rows_of_a_call() {
  for (const InstructionSet instructions : supported_instruction_sets()) {
    Case whole(100, 40);
    check(whole.apply(instructions, false, 1), "finite");
    for (const std::size_t num_rows : {1, 7, 12, 99}) {
      Case some(num_rows, 40);
      for (std::size_t row = 0; row < num_rows; ++row) {  // the last rows of the whole
        const std::size_t from = 100 - num_rows + row;
        for (std::size_t column = 0; column < Case::num_divided; ++column) {
          some.divided.at(row, column) = whole.divided.at(from, column);
        }
        for (std::size_t column = 0; column < 7; ++column) some.others.at(row, column) = whole.others.at(from, column);
        some.divisors[row] = whole.divisors[from];
      }
      check(some.apply(instructions, false, 2), "finite");
      for (std::size_t row = 0; row < num_rows; ++row) {
        for (std::size_t column = 0; column < 40; ++column) {
          check(some.out.at(row, column) == whole.out.at(100 - num_rows + row, column), "the same bits");
        }
      }
    }
  }
}

void test_rows_with_a_divisor_of_0_count_as_zeros() {
  for (const InstructionSet instructions : supported_instruction_sets()) {
    for (const std::size_t num_rows : {1, 12, 49, 200}) {
      for (const std::size_t every : {1, 2, 13}) {  // every row, every other row, few
        Case zeros(num_rows, 40);
        Case left_out(num_rows, 40);
        for (std::size_t row = 0; row < num_rows; row += every) {
          for (std::size_t column = 0; column < Case::num_divided; ++column) {
            zeros.divided.at(row, column) = 0;
            left_out.divided.at(row, column) = std::nanf("");
          }
          left_out.divisors[row] = 0;
        }
        check(zeros.apply(instructions, false, 2) && left_out.apply(instructions, false, 2), "finite");
        for (std::size_t part = 0; part < zeros.out.memory.size(); ++part) {
          check(zeros.out.memory[part] == left_out.out.memory[part], "the bits of zeros");
        }
      }
    }
  }
}

/// Removes the rows with a divisor of 0 from the divided parts.
void leave_out(Case& one) {
  for (std::size_t part = 0; part < one.divided.memory.size(); ++part) {
    const std::size_t width = one.divided.read[part].num_columns;
    std::vector<float> kept;
    for (std::size_t row = 0; row < one.num_rows; ++row) {
      const float* const from = one.divided.read[part].data + row * width;
      if (one.divisors[row] != 0) kept.insert(kept.end(), from, from + width);
    }
    one.divided.memory[part] = kept;  // as large as needed, so that sanitizers see every value out of bounds
    one.divided.memory[part].shrink_to_fit();
    one.divided.read[part] = {one.divided.memory[part].data(), kept.size() / width, width, width};
  }
}

void test_rows_with_a_divisor_of_0_may_be_missing() {
  for (const InstructionSet instructions : supported_instruction_sets()) {
    for (const std::size_t num_rows : {1, 12, 49, 200}) {
      for (const std::size_t every : {1, 2, 13, 500}) {
        Case whole(num_rows, 40);
        Case few(num_rows, 40);
        for (std::size_t row = 0; row < num_rows; row += every) whole.divisors[row] = few.divisors[row] = 0;
        leave_out(few);
        check(whole.apply(instructions, true, 2) && few.apply(instructions, true, 2), "finite");
        check(whole.out.memory == few.out.memory, "the bits of all rows");
      }
    }
  }
}

void test_values_that_are_not_finite_are_reported() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const InstructionSet instructions : supported_instruction_sets()) {
    for (const std::size_t row : {0, 13, 99}) {
      Case one(100, 33);
      one.others.at(row, 2) = std::nanf("");
      check(!one.apply(instructions, true, 2), "NaN");
      check(std::isnan(one.out.at(row, 32)), "a rectified NaN stays NaN");
      one.others.at(row, 2) = infinity;
      check(!one.apply(instructions, false, 2), "infinity");
      one.others.at(row, 2) = 0;
      check(one.apply(instructions, false, 2), "finite again");
    }
  }
}

void test_sizes_that_do_not_match_are_refused() {
  Case one(4, 6);
  const auto refused = [&](const auto& call, const char* claim) { check_throws<std::invalid_argument>(call, claim); };
  const Matrix<const float> weight{one.weight.data(), 6, Case::in_dim, Case::in_dim};
  refused([&] { SplitLinear(weight, std::vector<float>(5)); }, "a bias of another width");
  refused([&] { SplitLinear({one.weight.data(), 6, 0, 0}, {}); }, "no columns");
  const SplitLinear linear(weight, {});
  const auto apply = [&](const std::vector<SplitRows>& inputs, const std::vector<Matrix<float>>& out) {
    static_cast<void>(linear.apply(inputs, false, out, 1));
  };
  refused([&] { apply({{one.divided.read, one.divisors}}, one.out.written); }, "too few columns");
  refused([&] { apply({{one.divided.read, {}}, {one.others.read, {}}}, {one.out.written[0]}); }, "too few results");
  const std::vector<float> few(3, 1.0f);
  refused([&] { apply({{one.divided.read, few}, {one.others.read, {}}}, one.out.written); }, "too few divisors");
  refused([&] { apply({{one.others.read, {}}, {one.divided.read, one.divisors}}, one.out.written); }, "divided later");
  Parts more(5, {7});
  refused([&] { apply({{one.divided.read, {}}, {more.read, {}}}, one.out.written); }, "other rows");
  one.divisors = {1.0f, 0.0f, 0.0f, 1.0f};
  Parts three(3, {24, 6});
  refused([&] { apply({{three.read, one.divisors}, {one.others.read, {}}}, one.out.written); }, "rows for other zeros");
  check(one.out.at(0, 0) == -7.0f, "nothing is written");
}

}  // namespace

int main() {
  test_products_are_those_of_the_joined_rows();
  test_bits_do_not_depend_on_the_rows_of_a_call();
  test_rows_with_a_divisor_of_0_count_as_zeros();
  test_rows_with_a_divisor_of_0_may_be_missing();
  test_values_that_are_not_finite_are_reported();
  test_sizes_that_do_not_match_are_refused();
  return 0;
}
