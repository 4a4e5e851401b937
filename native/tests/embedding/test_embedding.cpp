// Kernels of embeddings: they compute what is defined, for any threads and instruction sets.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "matrices.hpp"
#include "values.hpp"

using diskhop::contrastive_softmax;
using diskhop::Distance;
using diskhop::distance_scores;
using diskhop::distance_scores_backward;
using diskhop::InstructionSet;
using diskhop::Matrix;
using diskhop::RowUpdater;
using diskhop::supported_instruction_sets;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::is_near;
using diskhop::testing::matrix;
using diskhop::testing::same_bits;
using diskhop::testing::some_values;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Calls claim(instructions, number of threads).
template <typename Claim>
void for_all_ways(Claim claim) {
  for (const InstructionSet instructions : supported_instruction_sets()) {
    for (const unsigned num_threads : {0U, 1U, 2U, 3U}) claim(instructions, num_threads);
  }
}

// -- Adagrad --

struct Update {
  std::size_t num_rows;
  std::size_t dim;
  bool is_by_row;
  std::size_t num_named;
  std::vector<float> values = some_values<float>(num_rows * dim, 1, 0.0F);
  std::vector<float> squares = std::vector<float>(is_by_row ? num_rows : num_rows * dim, 0.25F);
  std::vector<float> grads = some_values<float>(num_named * dim, 2, 0.0F);
  std::vector<std::int64_t> rows = std::vector<std::int64_t>(num_named);

  // Half of all gradients belong to one row.
  void name_rows() {
    std::mt19937 random(3);
    for (std::int64_t& row : rows) {
      row = random() % 2 == 0 ? num_rows / 2 : random() % num_rows;
    }
  }

  void run(unsigned num_threads, InstructionSet instructions) {
    RowUpdater updater(num_threads, instructions);
    updater.update(matrix(values, dim), matrix(squares, is_by_row ? 1 : dim), rows,
                   static_cast<const Update*>(this)->given(), {.lr = 0.1F, .epsilon = 1e-8F});
  }

  Matrix<const float> given() const { return {grads.data(), num_named, dim, dim}; }

  void check_against_definition(const Update& before) const {
    std::vector<double> sums(num_rows * dim);
    for (std::size_t at = 0; at < num_named * dim; ++at) {
      sums[static_cast<std::size_t>(rows[at / dim]) * dim + at % dim] += static_cast<double>(grads[at]);
    }
    for (std::size_t row = 0; row < num_rows; ++row) {
      double mean = 0;
      for (std::size_t at = row * dim; at < (row + 1) * dim; ++at)
        mean += sums[at] * sums[at] / static_cast<double>(dim);
      for (std::size_t at = row * dim; at < (row + 1) * dim; ++at) {
        const std::size_t of_state = is_by_row ? row : at;
        const double square = static_cast<double>(before.squares[of_state]) + (is_by_row ? mean : sums[at] * sums[at]);
        check(is_near(squares[of_state], square, 1e-4), "squares of " + std::to_string(dim));
        const double value = static_cast<double>(before.values[at]) - 0.1 * sums[at] / std::sqrt(square);
        check(is_near(values[at], value, 1e-4), "values of " + std::to_string(dim));
      }
    }
  }
};

void rows_are_updated_as_defined() {
  for (const bool is_by_row : {false, true}) {
    for (const std::size_t dim : {1, 3, 16, 20, 100}) {
      for (const std::size_t num_named : {0, 1, 40, 5000}) {
        Update before{num_named == 40 ? 1U : 3000U, dim, is_by_row, num_named};
        before.name_rows();
        Update first = before;
        first.run(1, InstructionSet::portable);
        first.check_against_definition(before);
        for_all_ways([&](InstructionSet instructions, unsigned num_threads) {
          Update again = before;
          again.run(num_threads, instructions);
          check(same_bits(again.values, first.values) && same_bits(again.squares, first.squares), "the same bits");
        });
      }
    }
  }
}

void rows_far_apart_are_sorted() {
  // 2^21 rows: two digits.
  std::vector<float> values(1 << 21, 0.0F);
  std::vector<float> squares(values.size(), 0.0F);
  std::vector<std::int64_t> rows;
  for (std::int64_t row = (1 << 21) - 1; row >= 0; row -= 977) rows.insert(rows.end(), {row, row / 3});
  const std::vector<float> grads(rows.size(), 1.0F);
  RowUpdater updater(3);
  updater.update(matrix(values, 1), matrix(squares, 1), rows, matrix(grads, 1), {.lr = 1, .epsilon = 0});
  std::vector<float> counts(values.size());
  for (const std::int64_t row : rows) counts[static_cast<std::size_t>(row)] += 1;
  for (std::size_t row = 0; row < values.size(); ++row) {
    check(std::equal_to<float>()(squares[row], counts[row] * counts[row]), "the square of a sum");
    check(std::equal_to<float>()(values[row], counts[row] > 0 ? -1.0F : 0.0F), "a step of lr");
  }
}

void gradients_of_zero_change_nothing() {
  for (const std::size_t num_columns : {1, 20}) {
    std::vector<float> values(5 * 20, -0.0F);
    std::vector<float> squares(5 * num_columns, 0.0F);
    std::vector<float> grads(3 * 20, 0.0F);
    std::fill(grads.begin() + 20, grads.end(), -0.0F);
    const std::vector<float> before = values;
    const std::vector<std::int64_t> rows{4, 0, 0};
    RowUpdater updater(1);
    updater.update(matrix(values, 20), matrix(squares, num_columns), rows,
                   matrix(static_cast<const std::vector<float>&>(grads), 20), {.lr = 0.1F, .epsilon = 0});
    check(same_bits(values, before), "values");
    check(same_bits(squares, std::vector<float>(squares.size())), "squares");
  }
}

void updates_that_do_not_fit_are_refused() {
  std::vector<float> values(12);
  std::vector<float> squares(4);
  const std::vector<float> grads(6);
  const std::vector<float> before = values;
  RowUpdater updater(2);
  const auto update = [&](std::size_t square_columns, const std::vector<std::int64_t>& rows, std::size_t grad_columns) {
    check_throws<std::invalid_argument>(
        [&] {
          updater.update(matrix(values, 3), matrix(squares, square_columns), rows, matrix(grads, grad_columns),
                         {.lr = 1, .epsilon = 1});
        },
        "an update");
  };
  update(1, {0, 4}, 3);
  update(1, {0, -1}, 3);
  update(1, {0}, 3);
  update(1, {0, 1, 2}, 2);
  update(2, {0, 1}, 3);
  check(same_bits(values, before), "nothing is written");
}

// -- softmax --

struct Softmax {
  std::vector<float> scores;
  std::vector<float> positives;
  std::vector<float> positive_grads = std::vector<float>(positives.size(), NAN);
  std::vector<float> losses = std::vector<float>(positives.size(), NAN);

  void run(bool with_positive, unsigned num_threads, InstructionSet instructions) {
    const std::size_t num_columns = positives.empty() ? 0 : scores.size() / positives.size();
    contrastive_softmax({scores.data(), positives.size(), num_columns, num_columns}, positives, positive_grads, losses,
                        with_positive, num_threads, instructions);
  }
};

void losses_and_their_gradients_are_as_defined() {
  for (const bool with_positive : {false, true}) {
    for (const std::size_t num_columns : {1, 5, 16, 63, 64, 1000}) {
      const std::size_t num_rows = 70;
      Softmax before{some_values<float>(num_rows * num_columns, 5, 3.0F), some_values<float>(num_rows, 6, 100.0F)};
      for (std::size_t at = 0; at < before.scores.size(); at += 3) before.scores[at] *= 100;
      for (std::size_t at = 0; at < before.scores.size(); at += 7) before.scores[at] = -infinity;
      std::fill_n(before.scores.begin(), num_columns, -infinity);
      Softmax first = before;
      first.run(with_positive, 1, InstructionSet::portable);
      for (std::size_t row = 0; row < num_rows; ++row) {
        const auto positive = static_cast<double>(before.positives[row]);
        double base = with_positive ? positive : -1000.0;
        double sum = 0;
        const float* scores = before.scores.data() + row * num_columns;
        for (std::size_t at = 0; at < num_columns; ++at) base = std::max(base, static_cast<double>(scores[at]));
        for (std::size_t at = 0; at < num_columns; ++at) sum += std::exp(static_cast<double>(scores[at]) - base);
        const double total = sum + (with_positive ? std::exp(positive - base) : 0.0);
        const bool is_empty = total <= 0;
        const double loss = is_empty ? 0 : std::log(total) + base - positive;
        const double grad = is_empty ? 0 : with_positive ? -sum / total : -1;
        check(is_near(first.losses[row], loss, 1e-5), "the loss of " + std::to_string(num_columns));
        check(is_near(first.positive_grads[row], grad, 1e-5), "the gradient of the positive");
        for (std::size_t at = 0; at < num_columns; ++at) {
          const double expected = is_empty ? 0 : std::exp(static_cast<double>(scores[at]) - base) / total;
          check(is_near(first.scores[row * num_columns + at], expected, 1e-5), "the gradient of a negative");
        }
      }
      for_all_ways([&](InstructionSet instructions, unsigned num_threads) {
        Softmax again = before;
        again.run(with_positive, num_threads, instructions);
        check(same_bits(again.scores, first.scores) && same_bits(again.losses, first.losses) &&
                  same_bits(again.positive_grads, first.positive_grads),
              "the same bits");
      });
    }
  }
}

void scores_that_are_not_finite_show_in_the_loss() {
  for_all_ways([](InstructionSet instructions, unsigned num_threads) {
    for (const bool with_positive : {false, true}) {
      for (const float bad : {infinity, static_cast<float>(NAN)}) {
        for (const std::size_t place : {0, 17, 37, 38}) {
          for (const float other : {0.0F, -infinity}) {
            Softmax layer{std::vector<float>(38, other), {1.0F}};
            (place < 38 ? layer.scores[place] : layer.positives[0]) = bad;
            layer.run(with_positive, num_threads, instructions);
            check(!std::isfinite(layer.losses[0]), "place " + std::to_string(place));
          }
        }
      }
    }
  });
  Softmax fewer{std::vector<float>(4), {1.0F, 2.0F}};
  fewer.losses.pop_back();
  check_throws<std::invalid_argument>([&] { fewer.run(false, 1, InstructionSet::portable); }, "fewer losses");
}

// -- distances --

struct Distances {
  Distance kind;
  std::size_t num_queries;
  std::size_t num_points;
  std::size_t dim;
  std::vector<float> queries = some_values<float>(num_queries * dim, 7, 0.0F);
  std::vector<float> points = some_values<float>(num_points * dim, 8, 0.0F);
  std::vector<float> grads = some_values<float>(num_queries * num_points, 9, 0.0F);
  std::vector<float> scores = std::vector<float>(grads.size(), NAN);
  std::vector<float> grad_queries = std::vector<float>(queries.size(), NAN);
  std::vector<float> grad_points = std::vector<float>(points.size(), NAN);

  void run(unsigned num_threads, InstructionSet instructions) {
    const Matrix<const float> from{queries.data(), num_queries, dim, dim};
    const Matrix<const float> to{points.data(), num_points, dim, dim};
    distance_scores(kind, from, to, {scores.data(), num_queries, num_points, num_points}, num_threads, instructions);
    distance_scores_backward(kind, from, to, {grads.data(), num_queries, num_points, num_points},
                             {grad_queries.data(), num_queries, dim, dim}, {grad_points.data(), num_points, dim, dim},
                             num_threads, instructions);
  }

  void check_against_definition() const {
    const std::size_t parts = kind == Distance::l1 ? 1 : 2;
    const std::size_t width = dim / parts;
    std::vector<double> of_queries(queries.size());
    std::vector<double> of_points(points.size());
    for (std::size_t pair = 0; pair < scores.size(); ++pair) {
      const std::size_t query = pair / num_points * dim;
      const std::size_t point = pair % num_points * dim;
      double sum = 0;
      for (std::size_t at = 0; at < width; ++at) {
        double differences[2] = {};
        for (std::size_t part = 0; part < parts; ++part) {
          const std::size_t column = part * width + at;
          differences[part] =
              static_cast<double>(queries[query + column]) - static_cast<double>(points[point + column]);
        }
        const double distance = std::hypot(differences[0], differences[1]);
        sum += distance;
        for (std::size_t part = 0; part < parts && distance > 0; ++part) {
          const double grad = static_cast<double>(grads[pair]) * differences[part] / distance;
          of_queries[query + part * width + at] -= grad;
          of_points[point + part * width + at] += grad;
        }
      }
      check(is_near(scores[pair], -sum, 1e-5), "scores of " + std::to_string(dim));
    }
    for (std::size_t at = 0; at < queries.size(); ++at) {
      check(is_near(grad_queries[at], of_queries[at], 1e-4), "gradients of queries of " + std::to_string(dim));
    }
    for (std::size_t at = 0; at < points.size(); ++at) {
      check(is_near(grad_points[at], of_points[at], 1e-4), "gradients of points of " + std::to_string(dim));
    }
  }
};

void distances_and_their_gradients_are_as_defined() {
  for (const Distance kind : {Distance::l1, Distance::modulus}) {
    for (const std::size_t dim : {0, 2, 30, 32, 100, 400}) {
      for (const std::size_t num_queries : {0, 1, 6, 300}) {
        for (const std::size_t num_points : {0, 1, 16, 37}) {
          Distances before{kind, num_queries, num_points, dim};
          // Some queries are points.
          if (num_points > 0 && num_queries > 0) std::copy_n(before.points.begin(), dim, before.queries.begin());
          Distances first = before;
          first.run(1, InstructionSet::portable);
          first.check_against_definition();
          for_all_ways([&](InstructionSet instructions, unsigned num_threads) {
            Distances again = before;
            again.run(num_threads, instructions);
            check(same_bits(again.scores, first.scores) && same_bits(again.grad_queries, first.grad_queries) &&
                      same_bits(again.grad_points, first.grad_points),
                  "the same bits");
          });
        }
      }
    }
  }
}

void distances_that_do_not_fit_are_refused() {
  Distances odd{Distance::modulus, 2, 2, 3};
  check_throws<std::invalid_argument>([&] { odd.run(1, InstructionSet::portable); }, "half a complex number");
  std::vector<float> values(6);
  const std::vector<float> rows(6);
  check_throws<std::invalid_argument>(
      [&] { distance_scores(Distance::l1, matrix(rows, 3), matrix(rows, 2), matrix(values, 3), 1); }, "columns");
  check_throws<std::invalid_argument>(
      [&] { distance_scores(Distance::l1, matrix(rows, 2), matrix(rows, 2), matrix(values, 2), 1); }, "scores");
}

}  // namespace

int main() {
  rows_are_updated_as_defined();
  rows_far_apart_are_sorted();
  gradients_of_zero_change_nothing();
  updates_that_do_not_fit_are_refused();
  losses_and_their_gradients_are_as_defined();
  scores_that_are_not_finite_show_in_the_loss();
  distances_and_their_gradients_are_as_defined();
  distances_that_do_not_fit_are_refused();
}
