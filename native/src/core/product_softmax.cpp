#include <algorithm>
#include <limits>
#include <stdexcept>

#include "diskhop/buffer.hpp"
#include "diskhop/embedding.hpp"
#include "instruction_sets.hpp"
#include "layer_products.hpp"
#include "left_out.hpp"
#include "vectors.hpp"

namespace diskhop {
namespace {

// Scores that stay in a core's second cache from the first product to the third.
constexpr std::size_t block_scores = std::size_t{1} << 18;
constexpr std::size_t least_rows = 16;

// Scores of a block, positives and their gradients: used again from call to call.
PooledBuffer take_scratch(std::size_t num_floats) {
  static BufferPool pool(std::size_t{64} << 20);
  return {pool, num_floats * sizeof(float)};
}

// positives = the products of rows
struct PairProducts {
  const float* queries;
  const float* wanted;
  std::size_t dim;
  float* positives;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      Floats sums{};
      for (std::size_t first = 0; first < dim; first += vector_floats) {
        const std::size_t count = std::min(vector_floats, dim - first);
        Floats query;
        Floats node;
        load(queries + row * dim + first, count, query);
        load(wanted + row * dim + first, count, node);
        sums += query * node;
      }
      positives[row] = sum_of(sums);
    }
  }
};

// query_grads += grads * wanted, wanted_grads += grads * queries
struct AddPairGrads {
  const float* grads;
  const float* queries;
  const float* wanted;
  std::size_t dim;
  float* query_grads;
  float* wanted_grads;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for (std::size_t first = 0; first < dim; first += vector_floats) {
        const std::size_t count = std::min(vector_floats, dim - first);
        const std::size_t place = row * dim + first;
        Floats query;
        Floats node;
        Floats of_query;
        Floats of_node;
        load(queries + place, count, query);
        load(wanted + place, count, node);
        load(query_grads + place, count, of_query);
        load(wanted_grads + place, count, of_node);
        of_query += grads[row] * node;
        of_node += grads[row] * query;
        store(query_grads + place, count, of_query);
        store(wanted_grads + place, count, of_node);
      }
    }
  }
};

void require_fit(const ProductChunk& chunk) {
  const std::size_t num_rows = chunk.queries.num_rows;
  const std::size_t dim = chunk.queries.num_columns;
  const auto fits = [dim](const auto& matrix, std::size_t rows) {
    return matrix.num_rows == rows && matrix.num_columns == dim && matrix.stride == dim;
  };
  const std::size_t num_negatives = chunk.negatives.num_rows;
  const bool is_right = fits(chunk.queries, num_rows) && fits(chunk.wanted, num_rows) &&
                        fits(chunk.query_grads, num_rows) && fits(chunk.wanted_grads, num_rows) &&
                        fits(chunk.negatives, num_negatives) && fits(chunk.negative_grads, num_negatives) &&
                        chunk.losses.size() == num_rows;
  if (!is_right) {
    throw std::invalid_argument("product_softmax: queries, nodes, gradients and losses must fit each other");
  }
}

}  // namespace

void mask_scores(const LeftOut& left_out, const Matrix<float>& scores) {
  const LeftOutColumns columns(left_out, scores.num_rows, scores.num_columns);
  for (std::size_t row = 0; row < scores.num_rows; ++row) {
    columns.visit(row, [&](std::size_t column) {
      scores.data[row * scores.stride + column] = -std::numeric_limits<float>::infinity();
    });
  }
}

void product_softmax(const MatrixProducts& products, const ProductChunk& chunk, bool with_positive,
                     InstructionSet instructions) {
  require_fit(chunk);
  const std::size_t num_rows = chunk.queries.num_rows;
  const std::size_t dim = chunk.queries.num_columns;
  const std::size_t num_negatives = chunk.negatives.num_rows;
  const LeftOutColumns left_out(chunk.left_out, num_rows, num_negatives);
  const LayerProducts<float> layer(products, dim, num_negatives);
  const std::size_t block_rows =
      std::clamp(block_scores / num_negatives / least_rows * least_rows, least_rows, std::max(least_rows, num_rows));
  const PooledBuffer scratch = take_scratch(block_rows * (num_negatives + 2));
  auto* const scores = reinterpret_cast<float*>(scratch.data());
  float* const positives = scores + block_rows * num_negatives;
  float* const positive_grads = positives + block_rows;
  const OneThread one(products);
  if (num_rows == 0) std::fill_n(chunk.negative_grads.data, num_negatives * dim, 0.0F);

  for (std::size_t first = 0; first < num_rows; first += block_rows) {
    const std::size_t count = std::min(block_rows, num_rows - first);
    const float* const queries = chunk.queries.data + first * dim;
    const float* const wanted = chunk.wanted.data + first * dim;
    float* const query_grads = chunk.query_grads.data + first * dim;
    layer.forward(queries, chunk.negatives.data, count, 0, scores);
    for (std::size_t row = 0; row < count; ++row) {
      left_out.visit(first + row, [&](std::size_t column) {
        scores[row * num_negatives + column] = -std::numeric_limits<float>::infinity();
      });
    }
    run_with(instructions, PairProducts{queries, wanted, dim, positives}, count);
    contrastive_softmax({scores, count, num_negatives, num_negatives}, {positives, count}, {positive_grads, count},
                        chunk.losses.subspan(first, count), with_positive, 1, instructions);
    layer.of_x(scores, chunk.negatives.data, count, query_grads);
    layer.of_weight(scores, queries, count, first == 0 ? 0.0F : 1.0F, chunk.negative_grads.data);
    run_with(instructions,
             AddPairGrads{positive_grads, queries, wanted, dim, query_grads, chunk.wanted_grads.data + first * dim},
             count);
  }
}

}  // namespace diskhop
