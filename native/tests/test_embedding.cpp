// Claims about the kernels of embeddings: what they compute, whatever the threads and instructions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
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
using diskhop::product_softmax;
using diskhop::ProductChunk;
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

// -- Chunks --

struct ChunkCase {
  std::size_t num_queries;
  std::size_t num_negatives;
  std::size_t dim;
  bool with_positive;
  std::vector<float> queries = some_values<float>(num_queries * dim, 1, 0.0F);
  std::vector<float> wanted = some_values<float>(num_queries * dim, 2, 0.0F);
  std::vector<float> negatives = some_values<float>(num_negatives * dim, 3, 0.0F);
  std::vector<std::int64_t> wanted_nodes = some_nodes(num_queries, 4);
  std::vector<std::int64_t> negative_nodes = some_nodes(num_negatives, 5);
  // Of every query two nodes are known, or as many as a hub's: more than there may be negatives.
  std::vector<std::int64_t> known = {};
  std::vector<std::int64_t> begins = {};
  std::vector<std::int64_t> ends = {};
  // What was there before must not matter, but where it is added to.
  std::vector<float> query_grads = some_values<float>(queries.size(), 6, 0.0F);
  std::vector<float> wanted_grads = some_values<float>(queries.size(), 7, 0.0F);
  std::vector<float> negative_grads = some_values<float>(negatives.size(), 8, 0.0F);
  std::vector<float> losses = std::vector<float>(num_queries, 9.0F);

  // Of few nodes: some negatives are the same node, and the node wanted.
  static std::vector<std::int64_t> some_nodes(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int64_t> nodes(count);
    for (std::int64_t& node : nodes) node = static_cast<std::int64_t>(random() % 7) << 33;
    return nodes;
  }

  // Those of query i are nodes i, i + 1, ... of those that some_nodes() has.
  void know(std::size_t count) {
    for (std::size_t query = 0; query < num_queries; ++query) {
      begins.push_back(static_cast<std::int64_t>(known.size()));
      for (std::size_t number = 0; number < count; ++number) {
        known.push_back(static_cast<std::int64_t>(query % 5 + number) << 33);
      }
      ends.push_back(static_cast<std::int64_t>(known.size()));
    }
  }
  [[nodiscard]] bool is_left_out(std::size_t query, std::size_t node) const {
    const auto is_known = [&] {
      return std::find(known.begin() + begins[query], known.begin() + ends[query], negative_nodes[node]) !=
             known.begin() + ends[query];
    };
    return negative_nodes[node] == wanted_nodes[query] || (!begins.empty() && is_known());
  }

  [[nodiscard]] ProductChunk chunk() {
    const auto of = [this](const std::vector<float>& values) { return matrix(values, dim); };
    return {.queries = of(queries),
            .wanted = of(wanted),
            .negatives = of(negatives),
            .left_out =
                {.wanted = wanted_nodes, .negatives = negative_nodes, .known = known, .begins = begins, .ends = ends},
            .query_grads = matrix(query_grads, dim),
            .wanted_grads = matrix(wanted_grads, dim),
            .negative_grads = matrix(negative_grads, dim),
            .losses = losses};
  }

  void run(InstructionSet instructions) { product_softmax(loops, chunk(), with_positive, instructions); }

  [[nodiscard]] double product(const std::vector<float>& nodes, std::size_t query, std::size_t node) const {
    double sum = 0;
    for (std::size_t column = 0; column < dim; ++column) {
      sum += static_cast<double>(queries[query * dim + column]) * static_cast<double>(nodes[node * dim + column]);
    }
    return sum;
  }

  // after: the same case once run.
  void check_against_definition(const ChunkCase& after) const {
    std::vector<double> of_queries(queries.size());
    std::vector<double> of_wanted(wanted_grads.begin(), wanted_grads.end());
    std::vector<double> of_negatives(negatives.size());
    for (std::size_t query = 0; query < num_queries; ++query) {
      const double positive = product(wanted, query, query);
      double total = with_positive ? std::exp(positive) : 0;
      std::vector<double> powers(num_negatives);
      for (std::size_t node = 0; node < num_negatives; ++node) {
        if (is_left_out(query, node)) continue;
        powers[node] = std::exp(product(negatives, query, node));
        total += powers[node];
      }
      const bool is_empty = total == 0;
      check(is_near(after.losses[query], is_empty ? 0 : std::log(total) - positive, 1e-4), "losses");
      const double of_positive = is_empty ? 0 : (with_positive ? std::exp(positive) / total : 0) - 1;
      for (std::size_t column = 0; column < dim; ++column) {
        const std::size_t place = query * dim + column;
        of_queries[place] += of_positive * static_cast<double>(wanted[place]);
        of_wanted[place] += of_positive * static_cast<double>(queries[place]);
        for (std::size_t node = 0; node < num_negatives && !is_empty; ++node) {
          const double share = powers[node] / total;
          of_queries[place] += share * static_cast<double>(negatives[node * dim + column]);
          of_negatives[node * dim + column] += share * static_cast<double>(queries[place]);
        }
      }
    }
    for (std::size_t place = 0; place < queries.size(); ++place) {
      check(is_near(after.query_grads[place], of_queries[place], 1e-4), "gradients of queries");
      check(is_near(after.wanted_grads[place], of_wanted[place], 1e-4), "gradients of nodes wanted");
    }
    for (std::size_t place = 0; place < negatives.size(); ++place) {
      check(is_near(after.negative_grads[place], of_negatives[place], 1e-3), "gradients of negatives");
    }
  }
};

void check_case(const ChunkCase& before) {
  ChunkCase first = before;
  first.run(InstructionSet::portable);
  before.check_against_definition(first);
  for (const InstructionSet instructions : supported_instruction_sets()) {
    ChunkCase again = before;
    again.run(instructions);
    check(same_bits(again.losses, first.losses) && same_bits(again.query_grads, first.query_grads) &&
              same_bits(again.wanted_grads, first.wanted_grads) &&
              same_bits(again.negative_grads, first.negative_grads),
          "the same bits");
  }
}

void chunks_are_as_defined() {
  for (const bool with_positive : {false, true}) {
    for (const std::size_t dim : {1, 15, 16, 40}) {
      for (const std::size_t num_negatives : {1, 2, 31, 20'000}) {  // of the last, blocks have 16 rows
        for (const std::size_t num_queries : {0, 1, 16, 33}) {
          if (num_negatives > 100 && dim > 1) continue;  // the loops are slow
          for (const std::size_t num_known : {0, 2, 4}) {
            ChunkCase before{num_queries, num_negatives, dim, with_positive};
            if (num_known > 0) before.know(num_known);
            check_case(before);
          }
        }
      }
    }
  }
  check(products_with_more_threads == 0 && library_threads == 7, "one thread of the library's, then what it had");
}

void chunks_that_do_not_fit_are_refused() {
  const auto refuses = [](const char* what, auto spoil) {
    ChunkCase made{4, 3, 2, true};
    spoil(made);
    check_throws<std::invalid_argument>([&] { made.run(InstructionSet::portable); }, what);
  };
  refuses("fewer nodes wanted", [](ChunkCase& made) { made.wanted.resize(6); });
  refuses("fewer gradients", [](ChunkCase& made) { made.query_grads.resize(6); });
  refuses("fewer nodes", [](ChunkCase& made) { made.negative_nodes.resize(2); });
  refuses("fewer ends than begins", [](ChunkCase& made) {
    made.know(2);
    made.ends.pop_back();
  });
  refuses("known nodes that are not there", [](ChunkCase& made) {
    made.know(2);
    made.known.pop_back();
  });
  refuses("an end before its begin", [](ChunkCase& made) {
    made.know(2);
    std::swap(made.begins[1], made.ends[1]);
  });
  refuses("more losses", [](ChunkCase& made) { made.losses.resize(5); });
  refuses("no negatives", [](ChunkCase& made) {
    made.negatives.clear();
    made.negative_grads.clear();
    made.negative_nodes.clear();
  });
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
  chunks_are_as_defined();
  chunks_that_do_not_fit_are_refused();
}
