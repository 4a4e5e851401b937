#include "diskhop/nn/softmax.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "simd/instruction_sets.hpp"
#include "simd/vector_exp.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Sums are of this many columns apart, whatever the registers.
constexpr std::size_t num_sums = vector_floats;

template <std::size_t lanes>
struct SoftmaxRows {
  const Matrix<const float>& logits;
  const SoftmaxOutputs& outputs;

  [[gnu::always_inline]] void operator()() const {
    for (std::size_t row = 0; row < logits.num_rows; ++row) {
      const float* const from = logits.data + row * logits.stride;
      const float most = largest_of(from);
      if (!outputs.classes.empty()) {
        std::size_t column = 0;
        while (column + 1 < logits.num_columns && !(from[column] == most)) ++column;
        outputs.classes[row] = static_cast<std::int64_t>(column);
      }
      if (outputs.largest.empty() && outputs.probabilities.data == nullptr) continue;
      float* const to = outputs.probabilities.data == nullptr
                            ? nullptr
                            : outputs.probabilities.data + row * outputs.probabilities.stride;
      // The power of the largest logit is 1, so its probability is the reciprocal of the sum.
      const float largest = 1.0F / sum_of_powers(from, most, to);
      if (!outputs.largest.empty()) outputs.largest[row] = largest;
      if (to == nullptr) continue;
      for (std::size_t column = 0; column < logits.num_columns; ++column) to[column] *= largest;
    }
  }

  [[gnu::always_inline]] float largest_of(const float* from) const {
    std::size_t column = 0;
    float most = from[0];
    if (logits.num_columns >= lanes) {
      Register<lanes> all;
      load_register<lanes>(from, lanes, all);
      for (column = lanes; column + lanes <= logits.num_columns; column += lanes) {
        Register<lanes> values;
        load_register<lanes>(from + column, lanes, values);
        all = values > all ? values : all;
      }
      for (std::size_t lane = 0; lane < lanes; ++lane) most = std::max(most, static_cast<float>(all[lane]));
    }
    for (; column < logits.num_columns; ++column) most = std::max(most, from[column]);
    return most;
  }

  /// Returns the sum of exp(logit - most), and writes the powers unless `to` is null.
  [[gnu::always_inline]] float sum_of_powers(const float* from, float most, float* to) const {
    Register<lanes> sums[num_sums / lanes] = {};
    for (std::size_t first = 0; first < logits.num_columns; first += num_sums) {
      for (std::size_t part = 0; part < num_sums / lanes && first + part * lanes < logits.num_columns; ++part) {
        const std::size_t column = first + part * lanes;
        const std::size_t count = std::min(lanes, logits.num_columns - column);
        Register<lanes> values;
        load_register<lanes>(from + column, count, values);
        values -= most;
        for (std::size_t lane = count; lane < lanes; ++lane) values[lane] = -std::numeric_limits<float>::infinity();
        exp_nonpositive(values);
        if (to != nullptr) store_register<lanes>(to + column, count, values);
        sums[part] += values;
      }
    }
    float sum = 0;
    for (const Register<lanes>& part : sums) {
      for (std::size_t lane = 0; lane < lanes; ++lane) sum += part[lane];
    }
    return sum;
  }
};

}  // namespace

void softmax_rows(const Matrix<const float>& logits, const SoftmaxOutputs& outputs, InstructionSet instructions) {
  const auto fits = [&](std::size_t size) { return size == 0 || size == logits.num_rows; };
  const Matrix<float>& all = outputs.probabilities;
  if (logits.num_columns == 0) throw std::invalid_argument("softmax: rows must have at least 1 column");
  if (!fits(outputs.classes.size()) || !fits(outputs.largest.size()) ||
      (all.data != nullptr && (all.num_rows != logits.num_rows || all.num_columns != logits.num_columns))) {
    throw std::invalid_argument("softmax: outputs must have an entry per row");
  }
  with_instructions(instructions, [&](auto set) { set.run(SoftmaxRows<set.lanes>{logits, outputs}); });
}

}  // namespace diskhop
