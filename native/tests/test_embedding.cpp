// Claims about the kernels of embeddings: what they compute, whatever the threads and instructions.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/embedding.hpp"
#include "loops.hpp"
#include "values.hpp"

using diskhop::contrastive_softmax;
using diskhop::Distance;
using diskhop::distance_scores;
using diskhop::distance_scores_backward;
using diskhop::InstructionSet;
using diskhop::Matrix;
using diskhop::product_gradients;
using diskhop::ProductBatch;
using diskhop::ProductScore;
using diskhop::RowUpdater;
using diskhop::supported_instruction_sets;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::library_threads;
using diskhop::testing::loops;
using diskhop::testing::products_with_more_threads;
using diskhop::testing::same_bits;
using diskhop::testing::some_values;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Matrix<float> matrix(std::vector<float>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

Matrix<const float> matrix(const std::vector<float>& values, std::size_t num_columns) {
  return {values.data(), values.size() / num_columns, num_columns, num_columns};
}

bool is_near(float found, double wanted, double tolerance) {
  return std::abs(static_cast<double>(found) - wanted) <= tolerance * (1 + std::abs(wanted));
}

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

  // Half of all gradients are those of one row.
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
          const double wanted = is_empty ? 0 : std::exp(static_cast<double>(scores[at]) - base) / total;
          check(is_near(first.scores[row * num_columns + at], wanted, 1e-5), "the gradient of a negative");
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

void what_is_not_finite_shows_in_the_loss() {
  for_all_ways([](InstructionSet instructions, unsigned num_threads) {
    for (const bool with_positive : {false, true}) {
      for (const float bad : {infinity, static_cast<float>(NAN)}) {
        for (const std::size_t place : {0, 17, 37, 38}) {
          for (const float other : {0.0F, -infinity}) {
            Softmax made_up{std::vector<float>(38, other), {1.0F}};
            (place < 38 ? made_up.scores[place] : made_up.positives[0]) = bad;
            made_up.run(with_positive, num_threads, instructions);
            check(!std::isfinite(made_up.losses[0]), "place " + std::to_string(place));
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

// -- Batches whose scores are products; that gradients are right is tested from Python, against autograd --

struct BatchCase {
  ProductScore score = ProductScore::dot;
  std::size_t num_edges = 0;
  std::size_t num_negatives = 0;
  std::size_t dim = 0;
  bool with_positive = false;
  bool is_reciprocal = false;
  std::size_t num_known = 0;

  static constexpr std::size_t chunk_size = 20;
  static constexpr std::size_t num_nodes = 7;  // few: some negatives are the same node, and the node wanted
  static constexpr std::size_t num_relations = 3;

  std::size_t num_chunks = (num_edges + chunk_size - 1) / chunk_size;
  std::vector<float> nodes = some_values<float>(num_nodes * dim, 1, 0.0F);
  std::vector<float> relations = some_values<float>(2 * num_relations * dim, 2, 0.0F);
  std::vector<std::int64_t> rows = some_rows(2 * num_edges + 2 * num_chunks * num_negatives, num_nodes, 3);
  std::vector<std::int64_t> relation_rows = some_rows(2 * num_edges, 2 * num_relations, 4);
  std::vector<std::int64_t> known = {};
  std::vector<std::int64_t> begins = {};
  std::vector<std::int64_t> ends = {};
  // What was there before must not matter.
  std::vector<float> grads = some_values<float>(rows.size() * dim, 5, 0.0F);
  std::vector<float> relation_grads = some_values<float>(relation_rows.size() * dim, 6, 0.0F);
  double loss = 0;

  static std::vector<std::int64_t> some_rows(std::size_t count, std::size_t limit, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int64_t> made(count);
    for (std::int64_t& row : made) row = static_cast<std::int64_t>(random() % limit);
    return made;
  }

  // Of every edge some nodes are known at both sides, perhaps more than there are negatives.
  void know(std::size_t count) {
    for (std::size_t query = 0; query < 2 * num_edges; ++query) {
      begins.push_back(static_cast<std::int64_t>(known.size()));
      for (std::size_t number = 0; number < count; ++number) {
        known.push_back(static_cast<std::int64_t>(query % 5 + number));
      }
      ends.push_back(static_cast<std::int64_t>(known.size()));
    }
  }

  [[nodiscard]] ProductBatch batch() {
    const bool has_relations = score != ProductScore::dot;
    ProductBatch made{.score = score,
                      .with_positive = with_positive,
                      .is_reciprocal = is_reciprocal,
                      .l2 = 0.25F,
                      .n3 = 0.5F,
                      .num_edges = num_edges,
                      .chunk_size = chunk_size,
                      .num_negatives = num_negatives,
                      .nodes = matrix(std::as_const(nodes), dim),
                      .relations = {},
                      .rows = rows,
                      .relation_rows = {},
                      .left_out = {.nodes = rows, .known = {known, known}, .begins = begins, .ends = ends},
                      .grads = matrix(grads, dim),
                      .relation_grads = {}};
    if (has_relations) {
      made.relations = matrix(std::as_const(relations), dim);
      made.relation_rows = relation_rows;
      made.relation_grads = matrix(relation_grads, dim);
    }
    return made;
  }

  void run(InstructionSet instructions, unsigned num_threads) {
    loss = product_gradients(loops, batch(), num_threads, instructions);
  }

  // Of a node with the query at a side of an edge.
  [[nodiscard]] double score_of(std::size_t side, std::size_t edge, std::size_t node_place) const {
    const auto value = [&](const std::vector<float>& table, const std::vector<std::int64_t>& of, std::size_t place,
                           std::size_t column) {
      return static_cast<double>(table[static_cast<std::size_t>(of[place]) * dim + column]);
    };
    const std::size_t asked = side * num_edges + edge;
    const auto a = [&](std::size_t column) { return value(nodes, rows, asked, column); };
    const auto n = [&](std::size_t column) { return value(nodes, rows, node_place, column); };
    const auto r = [&](std::size_t column) { return value(relations, relation_rows, asked, column); };
    double sum = 0;
    if (score != ProductScore::complex) {
      for (std::size_t column = 0; column < dim; ++column) {
        sum += a(column) * n(column) * (score == ProductScore::dot ? 1.0 : r(column));
      }
      return sum;
    }
    for (std::size_t column = 0; column < dim / 2; ++column) {
      const std::complex<double> by(r(column), r(dim / 2 + column));
      const std::complex<double> query =
          std::complex<double>(a(column), a(dim / 2 + column)) * (side == 0 || is_reciprocal ? by : std::conj(by));
      sum += (query * std::conj(std::complex<double>(n(column), n(dim / 2 + column)))).real();
    }
    return sum;
  }

  [[nodiscard]] bool is_left_out(std::size_t side, std::size_t edge, std::size_t negative_place) const {
    const std::int64_t node = rows[negative_place];
    if (node == rows[(1 - side) * num_edges + edge]) return true;
    if (begins.empty()) return false;
    const std::size_t query = side * num_edges + edge;
    return std::find(known.begin() + begins[query], known.begin() + ends[query], node) != known.begin() + ends[query];
  }

  [[nodiscard]] double loss_by_definition() const {
    double all = 0;
    for (const std::size_t side : {0, 1}) {
      for (std::size_t edge = 0; edge < num_edges; ++edge) {
        const double positive = score_of(side, edge, (1 - side) * num_edges + edge);
        double total = with_positive ? std::exp(positive) : 0;
        for (std::size_t number = 0; number < num_negatives; ++number) {
          const std::size_t place = 2 * num_edges + (side * num_chunks + edge / chunk_size) * num_negatives + number;
          if (!is_left_out(side, edge, place)) total += std::exp(score_of(side, edge, place));
        }
        if (total > 0) all += std::log(total) - positive;
      }
    }
    return all;
  }
};

void check_case(const BatchCase& before) {
  BatchCase first = before;
  first.run(InstructionSet::portable, 1);
  check(is_near(static_cast<float>(first.loss), before.loss_by_definition(), 1e-4), "the loss");
  for (const InstructionSet instructions : supported_instruction_sets()) {
    BatchCase again = before;
    again.run(instructions, 3);
    check(again.loss == first.loss && same_bits(again.grads, first.grads) &&
              same_bits(again.relation_grads, first.relation_grads),
          "the same bits");
  }
}

void batches_are_as_defined() {
  for (const ProductScore score : {ProductScore::dot, ProductScore::distmult, ProductScore::complex}) {
    for (const std::size_t dim : {2, 42}) {
      for (const std::size_t num_negatives : {1, 31, 20'000}) {  // of the last, blocks have 16 rows
        for (const std::size_t num_edges : {0, 1, 20, 45}) {
          if (num_negatives > 100 && (dim > 2 || num_edges > 20)) continue;  // the loops are slow
          for (const std::size_t num_known : {0, 2, 4}) {
            const bool is_odd = (num_edges + num_known) % 2 == 1;
            BatchCase made{score, num_edges, num_negatives, dim, is_odd, !is_odd};
            if (num_known > 0) made.know(num_known);
            check_case(made);
          }
        }
      }
    }
  }
  check(products_with_more_threads == 0 && library_threads == 7, "one thread of the library's, then what it had");
}

void batches_that_do_not_fit_are_refused() {
  const auto refuses = [](const char* what, auto spoil) {
    BatchCase made{ProductScore::complex, 4, 3, 2, true, true};
    made.know(2);
    spoil(made);
    check_throws<std::invalid_argument>([&] { made.run(InstructionSet::portable, 1); }, what);
  };
  refuses("fewer rows", [](BatchCase& made) { made.rows.pop_back(); });
  refuses("fewer gradients", [](BatchCase& made) { made.grads.resize(made.grads.size() - 2); });
  refuses("fewer relations' gradients", [](BatchCase& made) { made.relation_grads.resize(14); });
  refuses("a row that is not there", [](BatchCase& made) { made.rows[5] = BatchCase::num_nodes; });
  refuses("a row below 0", [](BatchCase& made) { made.rows[5] = -1; });
  refuses("a relation that is not there", [](BatchCase& made) { made.relation_rows[7] = 6; });
  refuses("an odd dim", [](BatchCase& made) {
    made.dim = 1;
    made.grads.resize(made.rows.size());
    made.relation_grads.resize(made.relation_rows.size());
  });
  refuses("no negatives", [](BatchCase& made) {
    made.num_negatives = 0;
    made.rows.resize(8);
    made.grads.resize(16);
  });
  refuses("fewer ends than begins", [](BatchCase& made) { made.ends.pop_back(); });
  refuses("fewer begins and ends", [](BatchCase& made) {
    made.begins.pop_back();
    made.ends.pop_back();
  });
  refuses("known nodes that are not there", [](BatchCase& made) { made.known.pop_back(); });
  refuses("an end before its begin", [](BatchCase& made) { std::swap(made.begins[1], made.ends[1]); });
}

}  // namespace

int main() {
  rows_are_updated_as_defined();
  rows_far_apart_are_sorted();
  gradients_of_zero_change_nothing();
  updates_that_do_not_fit_are_refused();
  losses_and_their_gradients_are_as_defined();
  what_is_not_finite_shows_in_the_loss();
  distances_and_their_gradients_are_as_defined();
  distances_that_do_not_fit_are_refused();
  batches_are_as_defined();
  batches_that_do_not_fit_are_refused();
}
