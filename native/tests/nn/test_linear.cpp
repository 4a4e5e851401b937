// Linear layers: values and gradients are as defined, for any number of threads, of which the library uses one.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/nn/linear.hpp"
#include "loops.hpp"
#include "values.hpp"

using diskhop::Bfloat16;
using diskhop::BufferPool;
using diskhop::Dropout;
using diskhop::linear;
using diskhop::linear_backward;
using diskhop::MatrixProducts;
using diskhop::Places;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::library_threads;
using diskhop::testing::loops;
using diskhop::testing::products_with_more_threads;
using diskhop::testing::read;
using diskhop::testing::same_bits;
using diskhop::testing::some_values;

namespace {

template <typename Value>
struct Results {
  std::vector<Value> out;
  std::vector<Value> grad_x;
  std::vector<float> grad_weight;
  std::vector<float> grad_bias;

  bool operator==(const Results& other) const {
    return same_bits(out, other.out) && same_bits(grad_x, other.grad_x) && same_bits(grad_weight, other.grad_weight) &&
           same_bits(grad_bias, other.grad_bias);
  }
};

BufferPool scratch(std::size_t{16} << 20);

template <typename Value>
struct Case {
  std::size_t num_rows;
  std::size_t in_dim;
  std::size_t out_dim;
  std::vector<Value> x = some_values<Value>(num_rows * in_dim, 1, 0.0F);
  std::vector<Value> weight = some_values<Value>(out_dim * in_dim, 2, 0.0F);
  std::vector<Value> bias = some_values<Value>(out_dim, 3, 1.0F);
  std::vector<Value> grad = some_values<Value>(num_rows * out_dim, 4, 0.0F);

  Results<Value> compute(const std::optional<Dropout>& dropout, unsigned num_threads) const {
    // Earlier contents must not matter.
    Results<Value> results{some_values<Value>(grad.size(), 5, 0.0F), some_values<Value>(x.size(), 6, 0.0F),
                           some_values<float>(weight.size(), 7, 0.0F), some_values<float>(out_dim, 8, 0.0F)};
    linear<Value>(loops, x, weight, bias, in_dim, dropout, results.out, scratch, num_threads);
    const std::vector<Value> left = dropout ? results.out : std::vector<Value>();
    linear_backward<Value>(loops, grad, x, weight, in_dim, left, dropout, results.grad_x, results.grad_weight,
                           results.grad_bias, scratch, num_threads);
    return results;
  }

  void check_against_definition(const Results<Value>& results, const std::optional<Dropout>& dropout,
                                double tolerance) const {
    const auto near = [&](double found, double expected, std::size_t num_terms) {
      return std::abs(found - expected) <= tolerance * (std::abs(expected) + std::sqrt(static_cast<double>(num_terms)));
    };
    const double scale = dropout ? 1 / (1 - static_cast<double>(dropout->probability)) : 1;
    std::vector<double> grad_weight(weight.size());
    std::vector<double> grad_bias(out_dim);
    for (std::size_t row = 0; row < num_rows; ++row) {
      std::vector<double> grad_x(in_dim);
      for (std::size_t to = 0; to < out_dim; ++to) {
        double value = read(bias[to]);
        for (std::size_t from = 0; from < in_dim; ++from) {
          value += read(x[row * in_dim + from]) * read(weight[to * in_dim + from]);
        }
        const double found = read(results.out[row * out_dim + to]);
        const bool is_kept = !dropout || found != 0;
        if (dropout && dropout->probability == 0) check(near(found, std::max(value, 0.0), in_dim), "rectified");
        if (is_kept) check(near(found, value * scale, in_dim), "values");
        const double given = is_kept ? read(grad[row * out_dim + to]) * scale : 0;
        grad_bias[to] += given;
        for (std::size_t from = 0; from < in_dim; ++from) {
          grad_x[from] += given * read(weight[to * in_dim + from]);
          grad_weight[to * in_dim + from] += given * read(x[row * in_dim + from]);
        }
      }
      for (std::size_t from = 0; from < in_dim; ++from) {
        check(near(read(results.grad_x[row * in_dim + from]), grad_x[from], out_dim), "gradient of x");
      }
    }
    for (std::size_t i = 0; i < weight.size(); ++i) {
      check(near(static_cast<double>(results.grad_weight[i]), grad_weight[i], num_rows), "gradient of weight");
    }
    for (std::size_t i = 0; i < out_dim; ++i) {
      check(near(static_cast<double>(results.grad_bias[i]), grad_bias[i], num_rows), "gradient of bias");
    }
  }
};

template <typename Value>
void values_and_gradients_are_as_defined(double tolerance) {
  using Shape = std::array<std::size_t, 3>;
  for (const Shape& shape : {Shape{0, 3, 4}, Shape{1, 1, 1}, Shape{255, 5, 17}, Shape{257, 16, 3}, Shape{3000, 7, 9}}) {
    for (const std::optional<Dropout> dropout :
         {std::optional<Dropout>(), std::optional(Dropout{}), std::optional(Dropout{.probability = 0.5F, .seed = 3})}) {
      const Case<Value> layer{shape[0], shape[1], shape[2]};
      const Results<Value> first = layer.compute(dropout, 1);
      layer.check_against_definition(first, dropout, tolerance);
      for (const unsigned num_threads : {0U, 2U, 5U}) {
        check(layer.compute(dropout, num_threads) == first, "the same bits");
      }
    }
  }
  check(library_threads == 7, "the caller's threads are its own again");
  check(products_with_more_threads == 0, "the library adds no threads");
}

template <typename Row>
void rows_of_16_bits_are_as_good_as_widened_ones() {
  for (const std::size_t num_rows : {1U, 257U, 3000U}) {
    Case<float> layer{num_rows, 19, 9};
    const std::vector<Row> rows = some_values<Row>(layer.x.size(), 1, 0.0F);
    std::ranges::transform(rows, layer.x.begin(), [](Row value) { return static_cast<float>(read(value)); });
    for (const std::optional<Dropout> dropout : {std::optional<Dropout>(), std::optional(Dropout{})}) {
      const Results<float> expected = layer.compute(dropout, 1);
      Results<float> found = expected;
      std::ranges::fill(found.out, 7.0F);
      std::ranges::fill(found.grad_weight, 7.0F);
      linear<float, Row>(loops, rows, layer.weight, layer.bias, layer.in_dim, dropout, found.out, scratch, 2);
      const std::vector<float> left = dropout ? found.out : std::vector<float>();
      linear_backward<float, Row>(loops, layer.grad, rows, layer.weight, layer.in_dim, left, dropout, found.grad_x,
                                  found.grad_weight, found.grad_bias, scratch, 2);
      check(found == expected, "the bits of widened rows");
    }
  }
}

template <typename Value, typename Row>
void rows_at_places_are_as_good_as_copied_ones() {
  constexpr std::size_t in_dim = 19;
  const std::vector<Row> x = some_values<Row>(700 * in_dim, 1, 0.0F);
  for (const std::size_t num_rows : {0U, 1U, 257U, 3000U}) {
    std::vector<std::int64_t> places(num_rows);
    for (std::size_t row = 0; row < num_rows; ++row) places[row] = static_cast<std::int64_t>((row * 389 + 5) % 700);
    std::vector<Row> copied;
    for (const std::int64_t place : places) {
      const auto row = x.begin() + place * static_cast<std::ptrdiff_t>(in_dim);
      copied.insert(copied.end(), row, row + in_dim);
    }
    const Case<Value> layer{num_rows, in_dim, 9};
    for (const std::optional<Dropout> dropout : {std::optional<Dropout>(), std::optional(Dropout{})}) {
      const auto compute = [&](const std::vector<Row>& rows, unsigned num_threads, const Places& at) {
        Results<Value> results{some_values<Value>(num_rows * 9, 5, 0.0F),
                               {},
                               some_values<float>(9 * in_dim, 7, 0.0F),
                               some_values<float>(9, 8, 0.0F)};
        linear<Value, Row>(loops, rows, layer.weight, layer.bias, in_dim, dropout, results.out, scratch, num_threads,
                           at);
        const std::vector<Value> left = dropout ? results.out : std::vector<Value>();
        linear_backward<Value, Row>(loops, layer.grad, rows, {}, in_dim, left, dropout, {}, results.grad_weight,
                                    results.grad_bias, scratch, num_threads, at);
        return results;
      };
      check(compute(x, 2, places) == compute(copied, 1, std::nullopt), "the bits of copied rows");
    }
  }
}

void optional_arguments_change_no_other_result() {
  const Case<float> layer{300, 4, 5};
  const Results<float> whole = layer.compute(std::nullopt, 2);
  std::vector<float> out(whole.out.size());
  linear<float>(loops, layer.x, layer.weight, {}, 4, std::nullopt, out, scratch, 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    check(std::abs(out[i] + layer.bias[i % 5] - whole.out[i]) < 1e-5F, "without a bias");
  }
  Results<float> less = whole;
  linear_backward<float>(loops, layer.grad, layer.x, {}, 4, {}, std::nullopt, {}, less.grad_weight, less.grad_bias,
                         scratch, 2);
  check(less == whole, "without a gradient of x");
}

void turns_draw_differently() {
  const std::vector<float> x(std::size_t{512} * 16, 1.0F);
  const std::vector<float> weight(std::size_t{16} * 16, 1.0F);
  std::vector<float> out(x.size());
  linear<float>(loops, x, weight, {}, 16, Dropout{.probability = 0.5F, .seed = 1}, out, scratch, 2);
  check(!std::equal(out.begin(), out.begin() + 256 * 16, out.begin() + 256 * 16), "no turn repeats another");
}

void sizes_that_do_not_fit_are_refused() {
  const Case<float> layer{5, 4, 3};
  std::vector<float> out(15);
  std::vector<float> fewer(14);
  const char* rule = "linear: rows, weight, bias and gradients must fit each other";
  check_throws<std::invalid_argument>(
      [&] { linear<float>(loops, layer.x, layer.weight, layer.bias, 4, std::nullopt, fewer, scratch, 1); }, rule);
  check_throws<std::invalid_argument>(
      [&] { linear<float>(loops, layer.x, layer.weight, layer.bias, 0, std::nullopt, out, scratch, 1); }, rule);
  std::vector<float> grad_x(20);
  std::vector<float> grad_weight(12);
  std::vector<float> grad_bias(3);
  check_throws<std::invalid_argument>(
      [&] {
        linear_backward<float>(loops, layer.grad, layer.x, layer.weight, 4, {}, Dropout{}, grad_x, grad_weight,
                               grad_bias, scratch, 1);
      },
      rule);
  const std::vector<std::int64_t> all{0, 1, 2, 3, 4};
  check_throws<std::invalid_argument>(
      [&] {
        linear_backward<float>(loops, layer.grad, layer.x, layer.weight, 4, {}, std::nullopt, grad_x, grad_weight,
                               grad_bias, scratch, 1, all);
      },
      rule);
  for (const std::int64_t place : {-1, 5}) {
    const std::vector<std::int64_t> places{0, 1, 2, 3, place};
    check_throws<std::invalid_argument>(
        [&] { linear<float>(loops, layer.x, layer.weight, layer.bias, 4, std::nullopt, out, scratch, 1, places); },
        "linear: places must be rows of x");
  }
  check_throws<std::invalid_argument>(
      [&] { linear<float>(loops, layer.x, layer.weight, layer.bias, 4, Dropout{.probability = 1}, out, scratch, 1); },
      "rectify: probability must be at least 0 and less than 1");
}

}  // namespace

int main() {
  values_and_gradients_are_as_defined<float>(1e-5);
  values_and_gradients_are_as_defined<Bfloat16>(1.0 / 64);
  rows_of_16_bits_are_as_good_as_widened_ones<Bfloat16>();
  rows_at_places_are_as_good_as_copied_ones<float, float>();
  rows_at_places_are_as_good_as_copied_ones<float, diskhop::Float16>();
  rows_at_places_are_as_good_as_copied_ones<Bfloat16, Bfloat16>();
  optional_arguments_change_no_other_result();
  turns_draw_differently();
  sizes_that_do_not_fit_are_refused();
}
