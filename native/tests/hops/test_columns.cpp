#include <cstddef>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/columns.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

/// Parts of their own memory, exactly as large as needed, so that sanitizers see every value out of bounds.
struct Parts {
  std::vector<std::vector<float>> memory;
  std::vector<Matrix<float>> written;
  std::vector<Matrix<const float>> read;

  Parts(std::size_t num_rows, const std::vector<std::size_t>& widths) {
    for (const std::size_t width : widths) {
      memory.emplace_back(num_rows * width, -1.0f);
      written.push_back({memory.back().data(), num_rows, width, width});
      read.push_back({memory.back().data(), num_rows, width, width});
    }
  }
};

void test_columns_come_back() {
  for (const std::size_t num_rows : {0, 1, 63, 64, 5000}) {  // the last is enough for several threads
    for (const std::vector<std::size_t>& widths : {std::vector<std::size_t>{7}, {4, 28, 1}, {16, 24}}) {
      for (const unsigned num_threads : {1u, 3u}) {
        std::size_t all = 0;
        for (const std::size_t width : widths) all += width;
        for (const std::size_t num_columns : {all, all - widths.back(), all - widths.back() / 2}) {
          if (num_columns == 0) continue;
          Parts parts(num_rows, widths);
          const std::size_t stride = num_columns + 2;
          std::vector<float> rows(num_rows * stride);
          for (std::size_t index = 0; index < rows.size(); ++index) rows[index] = static_cast<float>(index);
          split_columns({rows.data(), num_rows, num_columns, stride}, parts.written, num_threads);
          if (num_columns < all && num_rows > 0) {
            check(parts.memory.back().back() == -1.0f, "columns beyond those of the rows stay as they are");
          }
          std::vector<float> out(num_rows * stride, -2.0f);
          const Matrix<float> to{out.data(), num_rows, num_columns, stride};
          join_columns(parts.read, {}, to, num_threads);
          for (std::size_t row = 0; row < num_rows; ++row) {
            for (std::size_t column = 0; column < stride; ++column) {
              const float expected = column < num_columns ? rows[row * stride + column] : -2.0f;
              check(out[row * stride + column] == expected, "columns come back, and nothing else is written");
            }
          }
        }
      }
    }
  }
}

void test_rows_are_divided_alike_by_every_instruction_set() {
  const std::size_t num_rows = 300;
  Parts parts(num_rows, {5, 16});
  std::vector<float> rows(num_rows * 21);
  std::vector<float> divisors(num_rows);
  for (std::size_t index = 0; index < rows.size(); ++index) rows[index] = static_cast<float>(index) / 7.0f;
  for (std::size_t row = 0; row < num_rows; ++row) divisors[row] = static_cast<float>(row + 1);
  split_columns({rows.data(), num_rows, 21, 21}, parts.written, 1);
  for (const InstructionSet instructions : supported_instruction_sets()) {
    std::vector<float> out(rows.size());
    join_columns(parts.read, divisors, {out.data(), num_rows, 21, 21}, 2, instructions);
    for (std::size_t index = 0; index < rows.size(); ++index) {
      check(out[index] == rows[index] / divisors[index / 21], "every value is divided by its row's divisor");
    }
  }
}

void test_rows_with_a_divisor_of_0_become_zeros_and_may_be_missing() {
  for (const std::size_t num_rows : {1, 64, 65, 5000}) {
    for (const std::size_t every : {1, 2, 7}) {
      Parts all(num_rows, {5, 16});
      std::vector<float> divisors(num_rows);
      std::size_t num_kept = 0;
      for (std::size_t row = 0; row < num_rows; ++row) {
        divisors[row] = row % every == 0 ? 0.0f : static_cast<float>(row % 9 + 1);
        num_kept += divisors[row] == 0 ? 0 : 1;
      }
      Parts kept(num_kept, {5, 16});
      for (std::size_t part = 0, width = 5; part < 2; ++part, width = 16) {
        std::size_t next = 0;
        for (std::size_t index = 0; index < num_rows * width; ++index) {
          const auto value = static_cast<float>(index + part) / 3.0f;
          const bool is_missing = divisors[index / width] == 0;
          all.memory[part][index] = is_missing ? -5.0f : value;
          if (!is_missing) kept.memory[part][next++] = value;
        }
      }
      for (const InstructionSet instructions : supported_instruction_sets()) {
        std::vector<float> whole(num_rows * 20);
        std::vector<float> few(num_rows * 20);
        join_columns(all.read, divisors, {whole.data(), num_rows, 20, 20}, 3, instructions);
        join_columns(kept.read, divisors, {few.data(), num_rows, 20, 20}, 3, instructions);
        check(whole == few, "rows that are missing become zeros, as they do if they are there");
        for (std::size_t row = 0; row < num_rows; row += every) check(whole[row * 20 + 19] == 0, "zeros");
      }
    }
  }
}

void test_sizes_that_do_not_match_are_refused() {
  Parts parts(4, {3, 3});
  std::vector<float> rows(40);
  const auto refused = [&](std::size_t num_rows, std::size_t num_columns, const char* claim) {
    check_throws<std::invalid_argument>(
        [&] { split_columns({rows.data(), num_rows, num_columns, num_columns}, parts.written, 1); }, claim);
    check_throws<std::invalid_argument>(
        [&] { join_columns(parts.read, {}, {rows.data(), num_rows, num_columns, num_columns}, 1); }, claim);
  };
  refused(5, 6, "other rows");
  refused(4, 7, "too few columns");
  const std::vector<float> divisors(3, 1.0f);
  check_throws<std::invalid_argument>([&] { join_columns(parts.read, divisors, {rows.data(), 4, 6, 6}, 1); },
                                      "too few divisors");
  check(parts.memory[0][0] == -1.0f, "nothing is written");
}

}  // namespace

int main() {
  test_columns_come_back();
  test_rows_are_divided_alike_by_every_instruction_set();
  test_rows_with_a_divisor_of_0_become_zeros_and_may_be_missing();
  test_sizes_that_do_not_match_are_refused();
  return 0;
}
