#include "diskhop/nn/layer_norm.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "base/turns.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Rows per turn. Their gradients of weight and bias are added before other turns' are: another number gives other bits.
constexpr std::size_t turn_rows = 128;

// Calls visit(first column, number of columns) for the vectors of a row.
template <typename Visit>
[[gnu::always_inline]] inline void for_vectors(std::size_t num_columns, const Visit& visit) {
  const std::size_t whole = num_columns - num_columns % vector_floats;
  for (std::size_t first = 0; first < whole; first += vector_floats) visit(first, vector_floats);
  if (whole < num_columns) visit(whole, num_columns - whole);
}

template <std::size_t lanes, typename Value>
struct Normalize {
  const Value* x;
  std::span<const float> weight;
  std::span<const float> bias;
  float epsilon;
  RowMoments* moments;
  Value* out;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    const std::size_t num_columns = weight.size();
    const auto divisor = static_cast<float>(num_columns);
    for (std::size_t row = begin; row < end; ++row) {
      const Value* const from = x + row * num_columns;
      Value* const to = out + row * num_columns;
      Floats<lanes> sums{};
      for_vectors(num_columns, [&](std::size_t first, std::size_t count) __attribute__((always_inline)) {
        Floats<lanes> values;
        load(from + first, count, values);
        sums += values;
      });
      const float mean = sum_of(sums) / divisor;
      Floats<lanes> squares{};
      for_vectors(num_columns, [&](std::size_t first, std::size_t count) __attribute__((always_inline)) {
        Floats<lanes> values;
        load(from + first, count, values);
        values -= mean;
        if (count < vector_floats) clear_after(count, values);
        squares += values * values;
      });
      const float scale = 1.0F / std::sqrt(sum_of(squares) / divisor + epsilon);
      moments[row] = {.mean = mean, .scale = scale};
      for_vectors(num_columns, [&](std::size_t first, std::size_t count) __attribute__((always_inline)) {
        Floats<lanes> values;
        Floats<lanes> weights;
        Floats<lanes> biases;
        load(from + first, count, values);
        load(weight.data() + first, count, weights);
        load(bias.data() + first, count, biases);
        store(to + first, count, (values - mean) * scale * weights + biases);
      });
    }
  }
};

template <std::size_t lanes, typename Value>
struct NormalizeBackward {
  const Value* x;
  const RowMoments* moments;
  std::span<const float> weight;
  const Value* grad_out;
  Value* grad_x;

  // Adds the rows' gradients of weight and bias to sums (2, columns).
  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end, float* sums) const {
    const std::size_t num_columns = weight.size();
    const auto divisor = static_cast<float>(num_columns);
    for (std::size_t row = begin; row < end; ++row) {
      const Value* const from = x + row * num_columns;
      const Value* const given = grad_out + row * num_columns;
      Value* const to = grad_x + row * num_columns;
      const auto [mean, scale] = moments[row];
      Floats<lanes> products{};
      Floats<lanes> grads{};
      for_vectors(num_columns, [&](std::size_t first, std::size_t count) __attribute__((always_inline)) {
        Floats<lanes> normal;
        Floats<lanes> grad;
        Floats<lanes> weights;
        Floats<lanes> of_weight;
        Floats<lanes> of_bias;
        load(from + first, count, normal);
        load(given + first, count, grad);
        load(weight.data() + first, count, weights);
        load(sums + first, count, of_weight);
        load(sums + num_columns + first, count, of_bias);
        normal = (normal - mean) * scale;
        store(sums + first, count, of_weight + grad * normal);
        store(sums + num_columns + first, count, of_bias + grad);
        grad *= weights;
        products += grad * normal;
        grads += grad;
      });
      const float mean_product = sum_of(products) / divisor;
      const float mean_grad = sum_of(grads) / divisor;
      for_vectors(num_columns, [&](std::size_t first, std::size_t count) __attribute__((always_inline)) {
        Floats<lanes> normal;
        Floats<lanes> grad;
        Floats<lanes> weights;
        load(from + first, count, normal);
        load(given + first, count, grad);
        load(weight.data() + first, count, weights);
        normal = (normal - mean) * scale;
        store(to + first, count, (grad * weights - mean_grad - normal * mean_product) * scale);
      });
    }
  }
};

std::size_t turns_of(std::size_t num_rows) { return (num_rows + turn_rows - 1) / turn_rows; }

void require(bool fits) {
  if (!fits) throw std::invalid_argument("layer_norm: rows, columns, weights and moments must fit each other");
}

}  // namespace

template <typename Value>
void layer_norm(std::span<const Value> x, std::span<const float> weight, std::span<const float> bias, float epsilon,
                std::span<RowMoments> moments, std::span<Value> out, unsigned num_threads,
                InstructionSet instructions) {
  const std::size_t num_rows = moments.size();
  require(x.size() == num_rows * weight.size() && out.size() == x.size() && bias.size() == weight.size());
  with_instructions(instructions, [&](auto set) {
    const Normalize<set.lanes, Value> task{x.data(), weight, bias, epsilon, moments.data(), out.data()};
    share_turns(turns_of(num_rows), std::max(1U, num_threads), [&](std::size_t turn, std::size_t) {
      set.run(task, turn * turn_rows, std::min(num_rows, (turn + 1) * turn_rows));
    });
  });
}

template <typename Value>
void layer_norm_backward(std::span<const Value> x, std::span<const RowMoments> moments, std::span<const float> weight,
                         std::span<const Value> grad_out, std::span<Value> grad_x, std::span<float> grad_weight,
                         std::span<float> grad_bias, unsigned num_threads, InstructionSet instructions) {
  const std::size_t num_rows = moments.size();
  const std::size_t num_columns = weight.size();
  require(x.size() == num_rows * num_columns && grad_out.size() == x.size() && grad_x.size() == x.size() &&
          grad_weight.size() == num_columns && grad_bias.size() == num_columns);
  std::vector<float> sums(turns_of(num_rows) * 2 * num_columns);
  with_instructions(instructions, [&](auto set) {
    const NormalizeBackward<set.lanes, Value> task{x.data(), moments.data(), weight, grad_out.data(), grad_x.data()};
    share_turns(turns_of(num_rows), std::max(1U, num_threads), [&](std::size_t turn, std::size_t) {
      set.run(task, turn * turn_rows, std::min(num_rows, (turn + 1) * turn_rows), sums.data() + turn * 2 * num_columns);
    });
  });
  for (const float* part = sums.data(); part != sums.data() + sums.size(); part += 2 * num_columns) {
    for (std::size_t column = 0; column < num_columns; ++column) {
      grad_weight[column] += part[column];
      grad_bias[column] += part[num_columns + column];
    }
  }
}

template void layer_norm(std::span<const float>, std::span<const float>, std::span<const float>, float,
                         std::span<RowMoments>, std::span<float>, unsigned, InstructionSet);
template void layer_norm(std::span<const Bfloat16>, std::span<const float>, std::span<const float>, float,
                         std::span<RowMoments>, std::span<Bfloat16>, unsigned, InstructionSet);
template void layer_norm_backward(std::span<const float>, std::span<const RowMoments>, std::span<const float>,
                                  std::span<const float>, std::span<float>, std::span<float>, std::span<float>,
                                  unsigned, InstructionSet);
template void layer_norm_backward(std::span<const Bfloat16>, std::span<const RowMoments>, std::span<const float>,
                                  std::span<const Bfloat16>, std::span<Bfloat16>, std::span<float>, std::span<float>,
                                  unsigned, InstructionSet);

}  // namespace diskhop
