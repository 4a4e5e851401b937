// Batches with product scores: losses are as defined, for any threads and instruction sets. Gradients are tested from
// Python, against autograd.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "loops.hpp"
#include "matrices.hpp"
#include "values.hpp"

using diskhop::BufferPool;
using diskhop::InstructionSet;
using diskhop::product_gradients;
using diskhop::ProductBatch;
using diskhop::ProductScore;
using diskhop::supported_instruction_sets;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::is_near;
using diskhop::testing::library_threads;
using diskhop::testing::loops;
using diskhop::testing::matrix;
using diskhop::testing::products_with_more_threads;
using diskhop::testing::same_bits;
using diskhop::testing::some_values;

namespace {

BufferPool scratch(std::size_t{16} << 20);

struct BatchCase {
  ProductScore score = ProductScore::dot;
  std::size_t num_edges = 0;
  std::size_t num_negatives = 0;
  std::size_t dim = 0;
  bool with_positive = false;
  bool is_reciprocal = false;

  static constexpr std::size_t chunk_size = 20;
  static constexpr std::size_t num_nodes = 7;  // few: some negatives are the same node, or the answer
  static constexpr std::size_t num_relations = 3;

  std::size_t num_chunks = (num_edges + chunk_size - 1) / chunk_size;
  std::vector<float> nodes = some_values<float>(num_nodes * dim, 1, 0.0F);
  std::vector<float> relations = some_values<float>(2 * num_relations * dim, 2, 0.0F);
  std::vector<std::int64_t> rows = some_rows(2 * num_edges + 2 * num_chunks * num_negatives, num_nodes, 3);
  std::vector<std::int64_t> relation_rows = some_rows(2 * num_edges, 2 * num_relations, 4);
  std::vector<std::int64_t> known = {};
  std::vector<std::int64_t> begins = {};
  std::vector<std::int64_t> ends = {};
  // Earlier contents must not matter.
  std::vector<float> grads = some_values<float>(rows.size() * dim, 5, 0.0F);
  std::vector<float> relation_grads = some_values<float>(relation_rows.size() * dim, 6, 0.0F);
  double loss = 0;

  static std::vector<std::int64_t> some_rows(std::size_t count, std::size_t limit, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int64_t> made(count);
    for (std::int64_t& row : made) row = static_cast<std::int64_t>(random() % limit);
    return made;
  }

  // Each edge has known answers at both sides, possibly more than there are negatives.
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
    loss = product_gradients(loops, batch(), scratch, num_threads, instructions);
  }

  // Score of a node with an edge's query at a side.
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
      for (const std::size_t num_negatives : {1, 31, 20'000}) {  // blocks of the last have 16 rows
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
  batches_are_as_defined();
  batches_that_do_not_fit_are_refused();
}
