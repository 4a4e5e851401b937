// Layer normalisation: values and gradients are as defined, for any threads and instruction sets.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/nn/layer_norm.hpp"
#include "values.hpp"

using diskhop::Bfloat16;
using diskhop::InstructionSet;
using diskhop::layer_norm;
using diskhop::layer_norm_backward;
using diskhop::RowMoments;
using diskhop::supported_instruction_sets;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::read;
using diskhop::testing::same_bits;
using diskhop::testing::some_values;

namespace {

constexpr float epsilon = 1e-5F;

template <typename Value>
struct Results {
  std::vector<RowMoments> moments;
  std::vector<Value> out;
  std::vector<Value> grad_x;
  std::vector<float> grad_weight;
  std::vector<float> grad_bias;

  bool operator==(const Results& other) const {
    return same_bits(moments, other.moments) && same_bits(out, other.out) && same_bits(grad_x, other.grad_x) &&
           same_bits(grad_weight, other.grad_weight) && same_bits(grad_bias, other.grad_bias);
  }
};

template <typename Value>
struct Case {
  std::size_t num_rows;
  std::size_t num_columns;
  std::vector<Value> x = some_values<Value>(num_rows * num_columns, 1, 3.0F);
  std::vector<Value> grad = some_values<Value>(num_rows * num_columns, 2, 0.0F);
  std::vector<float> weight = some_values<float>(num_columns, 3, 1.0F);
  std::vector<float> bias = some_values<float>(num_columns, 4, 0.0F);

  Results<Value> compute(unsigned num_threads, InstructionSet instructions) const {
    Results<Value> results{std::vector<RowMoments>(num_rows), std::vector<Value>(x.size()),
                           std::vector<Value>(x.size()), std::vector<float>(num_columns),
                           std::vector<float>(num_columns)};
    layer_norm<Value>(x, weight, bias, epsilon, results.moments, results.out, num_threads, instructions);
    layer_norm_backward<Value>(x, results.moments, weight, grad, results.grad_x, results.grad_weight, results.grad_bias,
                               num_threads, instructions);
    return results;
  }

  // By the definition, in double. Gradients by the chain rule through mean and variance.
  void check_against_definition(const Results<Value>& results, double tolerance) const {
    const auto columns = static_cast<double>(num_columns);
    std::vector<double> grad_weight(num_columns);
    std::vector<double> grad_bias(num_columns);
    const auto near = [&](double found, double expected, double scale) {
      return std::abs(found - expected) <= tolerance * (std::abs(expected) + scale);
    };
    for (std::size_t row = 0; row < num_rows; ++row) {
      const std::size_t first = row * num_columns;
      double mean = 0;
      double variance = 0;
      for (std::size_t column = 0; column < num_columns; ++column) mean += read(x[first + column]) / columns;
      for (std::size_t column = 0; column < num_columns; ++column) {
        variance += std::pow(read(x[first + column]) - mean, 2) / columns;
      }
      const double scale = 1 / std::sqrt(variance + static_cast<double>(epsilon));
      double mean_grad = 0;
      double mean_product = 0;
      for (std::size_t column = 0; column < num_columns; ++column) {
        const double normal = (read(x[first + column]) - mean) * scale;
        const double given = read(grad[first + column]);
        grad_weight[column] += given * normal;
        grad_bias[column] += given;
        mean_grad += given * static_cast<double>(weight[column]) / columns;
        mean_product += given * static_cast<double>(weight[column]) * normal / columns;
        const double expected = normal * static_cast<double>(weight[column]) + static_cast<double>(bias[column]);
        check(near(read(results.out[first + column]), expected, 1), "values of " + std::to_string(num_columns));
      }
      for (std::size_t column = 0; column < num_columns; ++column) {
        const double normal = (read(x[first + column]) - mean) * scale;
        const double given = read(grad[first + column]) * static_cast<double>(weight[column]);
        const double expected = scale * (given - mean_grad - normal * mean_product);
        // The deviation's rounding error is scaled twice.
        check(near(read(results.grad_x[first + column]), expected, scale * (1 + scale)), "gradient of x");
      }
    }
    for (std::size_t column = 0; column < num_columns; ++column) {
      const auto rows = static_cast<double>(num_rows + 1);
      check(near(static_cast<double>(results.grad_weight[column]), grad_weight[column], rows), "gradient of weight");
      check(near(static_cast<double>(results.grad_bias[column]), grad_bias[column], rows), "gradient of bias");
    }
  }
};

template <typename Value>
void values_and_gradients_are_as_defined(double tolerance) {
  for (const std::size_t num_columns : {1, 3, 16, 47, 256}) {
    for (const std::size_t num_rows : {0, 1, 127, 1000}) {
      const Case<Value> layer{num_rows, num_columns};
      const Results<Value> first = layer.compute(1, InstructionSet::portable);
      layer.check_against_definition(first, tolerance);
      for (const InstructionSet instructions : supported_instruction_sets()) {
        for (const unsigned num_threads : {0U, 1U, 3U}) {
          check(layer.compute(num_threads, instructions) == first, "the same bits");
        }
      }
    }
  }
}

void gradients_of_parameters_are_added() {
  const Case<float> layer{5, 4};
  Results<float> once = layer.compute(1, InstructionSet::portable);
  std::vector<float> grad_weight(4, 1.0F);
  std::vector<float> grad_bias(4, 1.0F);
  layer_norm_backward<float>(layer.x, once.moments, layer.weight, layer.grad, once.grad_x, grad_weight, grad_bias, 1);
  for (std::size_t column = 0; column < 4; ++column) {
    check(std::abs(grad_weight[column] - once.grad_weight[column] - 1) < 1e-5F, "added to the weight's");
    check(std::abs(grad_bias[column] - once.grad_bias[column] - 1) < 1e-5F, "added to the bias's");
  }
}

void sizes_that_do_not_fit_are_refused() {
  Case<float> layer{5, 4};
  std::vector<RowMoments> fewer(4);
  std::vector<float> out(20);
  check_throws<std::invalid_argument>(
      [&] { layer_norm<float>(layer.x, layer.weight, layer.bias, epsilon, fewer, out, 1); },
      "layer_norm: rows, columns, weights and moments must fit each other");
  check_throws<std::invalid_argument>(
      [&] { layer_norm_backward<float>(layer.x, fewer, layer.weight, layer.grad, out, layer.weight, layer.bias, 1); },
      "layer_norm: rows, columns, weights and moments must fit each other");
}

}  // namespace

int main() {
  values_and_gradients_are_as_defined<float>(1e-5);
  values_and_gradients_are_as_defined<Bfloat16>(1.0 / 64);
  gradients_of_parameters_are_added();
  sizes_that_do_not_fit_are_refused();
}
