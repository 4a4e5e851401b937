#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/turns.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vector_exp.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::size_t turn_values = 1 << 15;
constexpr std::size_t run_floats = 64 * vector_floats;

// NaN is never the maximum: it reaches the result through the sum.
template <typename Values>
[[gnu::always_inline]] inline void raise(Values& largest, const Values& values) {
  largest = values > largest ? values : largest;
}

// lanes: floats per register. Sums have sixteen lanes for all of them.
template <std::size_t lanes>
struct Softmax {
  using Values = Register<lanes>;
  static constexpr std::size_t parts = vector_floats / lanes;

  const Matrix<float>& scores;
  const float* positives;
  float* positive_grads;
  float* losses;
  bool with_positive;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for (std::size_t row = begin; row < end; ++row) run(row);
  }

  [[gnu::always_inline]] void run(std::size_t row) const {
    float* const of_row = scores.data + row * scores.stride;
    const float positive = positives[row];
    const std::size_t rest = scores.num_columns % vector_floats;
    const std::size_t whole = scores.num_columns - rest;
    // An incomplete vector is padded with excluded negatives.
    float tail[vector_floats];
    std::fill_n(tail, vector_floats, -infinity);
    if (rest > 0) std::memcpy(tail, of_row + whole, rest * sizeof(float));

    float base = largest(of_row, whole);
    raise(base, largest(tail, vector_floats));
    if (with_positive) raise(base, positive);
    if (base == -infinity) base = 0;  // infinity cannot be subtracted from excluded scores

    // In runs: when many similar values are added one by one, all round to the same side.
    Floats<lanes> sums{};
    for (std::size_t first = 0; first < whole; first += run_floats) {
      Values run[parts]{};
      const std::size_t end = std::min(whole, first + run_floats);
      for (std::size_t place = first; place < end; place += vector_floats) add_powers(base, of_row + place, run);
      for (std::size_t part = 0; part < parts; ++part) sums.parts[part] += run[part];
    }
    add_powers(base, tail, sums.parts);
    const float sum = sum_of(sums);
    float total = sum;
    if (with_positive) {
      Values of_positive = Values{} + (positive - base);
      exp_nonpositive(of_positive);
      total += of_positive[0];
    }
    // All negatives are excluded; a NaN sum is not.
    const bool is_empty = total <= 0;
    if (is_empty) {
      positive_grads[row] = 0;
      losses[row] = positive - positive;  // 0, or not finite if the positive is not
    } else {
      positive_grads[row] = with_positive ? -(sum / total) : -1.0F;
      // In double: after rounding, the library's bits are the same on every machine.
      losses[row] = static_cast<float>(std::log(static_cast<double>(total))) + (base - positive);
    }

    const float scale = is_empty ? 0.0F : 1.0F / total;
    multiply(scale, of_row, whole);
    multiply(scale, tail, vector_floats);
    if (rest > 0) std::memcpy(of_row + whole, tail, rest * sizeof(float));
  }

  // values = exp(values - base), one vector; sums += values
  [[gnu::always_inline]] static void add_powers(float base, float* values, Values* sums) {
    for (std::size_t part = 0; part < parts; ++part) {
      Values found;
      std::memcpy(&found, values + part * lanes, sizeof found);
      found -= base;
      exp_nonpositive(found);
      std::memcpy(values + part * lanes, &found, sizeof found);
      sums[part] += found;
    }
  }

  [[gnu::always_inline]] static void multiply(float scale, float* values, std::size_t num_values) {
    for (std::size_t first = 0; first < num_values; first += lanes) {
      Values found;
      std::memcpy(&found, values + first, sizeof found);
      found *= scale;
      std::memcpy(values + first, &found, sizeof found);
    }
  }

  // Largest value of whole vectors.
  [[gnu::always_inline]] static float largest(const float* values, std::size_t num_values) {
    // Four at a time: otherwise each comparison waits for the previous one.
    constexpr std::size_t at_once = 4 * lanes;
    const Values lowest = Values{} - infinity;
    Values found[4] = {lowest, lowest, lowest, lowest};
    std::size_t first = 0;
    for (; first + at_once <= num_values; first += at_once) {
      for (std::size_t part = 0; part < 4; ++part) {
        Values more;
        std::memcpy(&more, values + first + part * lanes, sizeof more);
        raise(found[part], more);
      }
    }
    for (; first < num_values; first += lanes) {
      Values more;
      std::memcpy(&more, values + first, sizeof more);
      raise(found[0], more);
    }
    raise(found[0], found[1]);
    raise(found[2], found[3]);
    raise(found[0], found[2]);
    return fold_lanes(found[0],
                      [](auto& most, const auto& others) __attribute__((always_inline)) { raise(most, others); });
  }
};

}  // namespace

void contrastive_softmax(const Matrix<float>& scores, std::span<const float> positives, std::span<float> positive_grads,
                         std::span<float> losses, bool with_positive, unsigned num_threads,
                         InstructionSet instructions) {
  const std::size_t num_rows = scores.num_rows;
  if (positives.size() != num_rows || positive_grads.size() != num_rows || losses.size() != num_rows) {
    throw std::invalid_argument("contrastive_softmax: positives, their gradients and losses must be one for each row");
  }
  const std::size_t turn_rows = std::max<std::size_t>(1, turn_values / std::max<std::size_t>(1, scores.num_columns));
  const std::size_t num_turns = (num_rows + turn_rows - 1) / turn_rows;
  with_instructions(instructions, [&](auto set) {
    const Softmax<set.lanes> task{scores, positives.data(), positive_grads.data(), losses.data(), with_positive};
    share_turns(num_turns, std::max(1U, num_threads), [&](std::size_t turn, std::size_t) {
      set.run(task, turn * turn_rows, std::min(num_rows, (turn + 1) * turn_rows));
    });
  });
}

}  // namespace diskhop
