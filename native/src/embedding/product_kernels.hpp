// Kernels of product_gradients(): a block's embeddings in, its queries, positive scores and gradients out.
//
// The *anchor* of a query is the end of the edge that it is made from, the *answer* the other end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "diskhop/embedding/embedding.hpp"
#include "simd/vectors.hpp"

namespace diskhop {

/// Prefetch distance, in rows.
inline constexpr std::size_t prefetched_rows = 8;

template <std::size_t lanes>
using Lanes = std::integral_constant<std::size_t, lanes>;

template <std::size_t lanes, typename Visit>
[[gnu::always_inline]] inline void for_rest(std::size_t first, std::size_t size, const Visit& visit) {
  if (size - first >= lanes) {
    visit(first, Lanes<lanes>{});
    first += lanes;
  }
  if constexpr (lanes > 1) for_rest<lanes / 2>(first, size, visit);
}

/// Calls visit(first, lanes) for whole registers, of `widest` floats, then for shorter ones: a last one padded in
/// memory would stall on the store that fills it.
template <std::size_t widest, typename Visit>
[[gnu::always_inline]] inline void for_vectors(std::size_t size, const Visit& visit) {
  std::size_t first = 0;
  for (; first + widest <= size; first += widest) visit(first, Lanes<widest>{});
  for_rest<widest / 2>(first, size, visit);
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void load_whole(const float* from, Register<lanes>& values) {
  load_register<lanes>(from, lanes, values);
}
template <std::size_t lanes>
[[gnu::always_inline]] inline void store_whole(float* to, const Register<lanes>& values) {
  store_register<lanes>(to, lanes, values);
}
template <std::size_t lanes>
[[gnu::always_inline]] inline void add(float* to, const Register<lanes>& more) {
  Register<lanes> values;
  load_whole<lanes>(to, values);
  store_whole<lanes>(to, values + more);
}

/// Multiplies values by l2 + n3 * |values|.
template <std::size_t lanes>
[[gnu::always_inline]] inline void times_weights(float l2, float n3, Register<lanes>& values) {
  RegisterWords<lanes> words;
  std::memcpy(&words, &values, sizeof words);
  words &= 0x7fffffff;
  Register<lanes> magnitudes;
  std::memcpy(&magnitudes, &words, sizeof magnitudes);
  values *= magnitudes * n3 + l2;
}

/// Copies rows of a table by their numbers.
struct GatherRows {
  const Matrix<const float>& table;
  const std::int64_t* rows;
  float* to;
  std::size_t stride;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    const std::size_t dim = table.num_columns;
    for (std::size_t row = 0; row < num_rows; ++row) {
      if (row + prefetched_rows < num_rows) {
        const float* const next = row_of(row + prefetched_rows);
        for (std::size_t column = 0; column < dim; column += vector_floats) __builtin_prefetch(next + column);
        __builtin_prefetch(next + dim - 1);
      }
      std::memcpy(to + row * stride, row_of(row), dim * sizeof(float));
    }
  }

  [[nodiscard, gnu::always_inline]] const float* row_of(std::size_t row) const {
    return table.data + static_cast<std::size_t>(rows[row]) * table.stride;
  }
};

/// Fills grads with the gradients of l2 * x^2 / 2 + n3 * |x|^3 / 3.
template <std::size_t widest>
struct BeginGrads {
  const float* values;
  std::size_t stride;
  std::size_t dim;
  float l2;
  float n3;
  float* grads;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for_vectors<widest>(dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
        using Values = Register<lanes()>;
        Values value;
        load_whole<lanes()>(values + row * stride + first, value);
        times_weights<lanes()>(l2, n3, value);
        store_whole<lanes()>(grads + row * dim + first, value);
      });
    }
  }
};

/// One side of a block: its anchors, answers and relations.
struct Side {
  ProductScore score;
  bool is_tail;  // answers are destinations, or relations have an embedding for each direction
  std::size_t dim;
  std::size_t stride;  // between rows of anchors, answers, queries and query gradients
  Matrix<const float> relations;
  const std::int64_t* relation_rows;
  const float* anchors;
  const float* answers;

  // Sign of the relation's imaginary part: destinations are multiplied by its conjugate.
  [[nodiscard, gnu::always_inline]] float sign() const { return is_tail ? 1.0F : -1.0F; }
  [[nodiscard, gnu::always_inline]] const float* relation(std::size_t row) const {
    return relations.data + static_cast<std::size_t>(relation_rows[row]) * relations.stride;
  }
};

/// Fills queries with anchors times relations.
template <std::size_t widest>
struct MakeQueries {
  const Side& side;
  float* queries;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      const float* const anchors = side.anchors + row * side.stride;
      if (side.score == ProductScore::distmult) {
        times(anchors, side.relation(row), queries + row * side.stride);
      } else {
        times_complex(anchors, side.relation(row), queries + row * side.stride);
      }
    }
  }

  [[gnu::always_inline]] void times(const float* anchors, const float* relation, float* query) const {
    for_vectors<widest>(side.dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      Values values;
      Values factors;
      load_whole<lanes()>(anchors + first, values);
      load_whole<lanes()>(relation + first, factors);
      store_whole<lanes()>(query + first, values * factors);
    });
  }

  [[gnu::always_inline]] void times_complex(const float* anchors, const float* relation, float* query) const {
    const std::size_t half = side.dim / 2;
    for_vectors<widest>(half, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      Values real;
      Values imaginary;
      Values relation_real;
      Values relation_imaginary;
      load_whole<lanes()>(anchors + first, real);
      load_whole<lanes()>(anchors + half + first, imaginary);
      load_whole<lanes()>(relation + first, relation_real);
      load_whole<lanes()>(relation + half + first, relation_imaginary);
      relation_imaginary *= side.sign();
      store_whole<lanes()>(query + first, real * relation_real - imaginary * relation_imaginary);
      store_whole<lanes()>(query + half + first, real * relation_imaginary + imaginary * relation_real);
    });
  }
};

/// Fills positives with the dot products of queries and answers.
template <std::size_t lanes>
struct PairProducts {
  const float* queries;
  const float* answers;
  std::size_t dim;
  std::size_t stride;
  float* positives;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      Floats<lanes> sums{};
      for (std::size_t first = 0; first < dim; first += vector_floats) {
        const std::size_t count = std::min(vector_floats, dim - first);
        Floats<lanes> query;
        Floats<lanes> node;
        load(queries + row * stride + first, count, query);
        load(answers + row * stride + first, count, node);
        sums += query * node;
      }
      positives[row] = sum_of(sums);
    }
  }
};

/// Adds the positive pairs to query_grads, then turns query_grads into the gradients of ends and relations.
template <std::size_t widest>
struct EndGrads {
  const Side& side;
  const float* queries;
  const float* pair_grads;
  float n3;
  float* query_grads;
  float* anchor_grads;    // accumulated
  float* answer_grads;    // accumulated
  float* relation_grads;  // filled

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      add_pair(row);
      if (side.score == ProductScore::distmult) through_factors(row);
      if (side.score == ProductScore::complex) through_complex_factors(row);
    }
  }

  [[gnu::always_inline]] void add_pair(std::size_t row) const {
    const std::size_t begin = row * side.stride;
    const std::size_t grads_begin = row * side.dim;
    for_vectors<widest>(side.dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      const std::size_t place = begin + first;
      Values query;
      Values node;
      Values query_grad;
      load_whole<lanes()>(queries + place, query);
      load_whole<lanes()>(side.answers + place, node);
      load_whole<lanes()>(query_grads + place, query_grad);
      query_grad += pair_grads[row] * node;
      add<lanes()>(answer_grads + grads_begin + first, pair_grads[row] * query);
      if (side.score == ProductScore::dot) {
        add<lanes()>(anchor_grads + grads_begin + first, query_grad);
      } else {
        store_whole<lanes()>(query_grads + place, query_grad);
      }
    });
  }

  [[gnu::always_inline]] void through_factors(std::size_t row) const {
    const float* const relation_values = side.relation(row);
    for_vectors<widest>(side.dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      const std::size_t place = row * side.stride + first;
      const std::size_t grads_place = row * side.dim + first;
      Values query_grad;
      Values anchors;
      Values relation;
      load_whole<lanes()>(query_grads + place, query_grad);
      load_whole<lanes()>(side.anchors + place, anchors);
      load_whole<lanes()>(relation_values + first, relation);
      add<lanes()>(anchor_grads + grads_place, query_grad * relation);
      times_weights<lanes()>(0, n3, relation);
      store_whole<lanes()>(relation_grads + grads_place, query_grad * anchors + relation);
    });
  }

  [[gnu::always_inline]] void through_complex_factors(std::size_t row) const {
    const std::size_t half = side.dim / 2;
    const float* const relation_values = side.relation(row);
    for_vectors<widest>(half, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      const std::size_t place = row * side.stride + first;
      const std::size_t grads_place = row * side.dim + first;
      Values grad_real;
      Values grad_imaginary;
      Values real;
      Values imaginary;
      Values relation_real;
      Values relation_imaginary;
      load_whole<lanes()>(query_grads + place, grad_real);
      load_whole<lanes()>(query_grads + place + half, grad_imaginary);
      load_whole<lanes()>(side.anchors + place, real);
      load_whole<lanes()>(side.anchors + place + half, imaginary);
      load_whole<lanes()>(relation_values + first, relation_real);
      load_whole<lanes()>(relation_values + half + first, relation_imaginary);
      const Values signed_imaginary = relation_imaginary * side.sign();
      add<lanes()>(anchor_grads + grads_place, grad_real * relation_real + grad_imaginary * signed_imaginary);
      add<lanes()>(anchor_grads + grads_place + half, grad_imaginary * relation_real - grad_real * signed_imaginary);
      times_weights<lanes()>(0, n3, relation_real);
      times_weights<lanes()>(0, n3, relation_imaginary);
      store_whole<lanes()>(relation_grads + grads_place, grad_real * real + grad_imaginary * imaginary + relation_real);
      store_whole<lanes()>(relation_grads + grads_place + half,
                           side.sign() * (grad_imaginary * real - grad_real * imaginary) + relation_imaginary);
    });
  }
};

}  // namespace diskhop
