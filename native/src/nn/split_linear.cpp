#include "diskhop/nn/split_linear.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "base/turns.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Rows of a turn: its sums meet the same weights while these are in a core's caches.
constexpr std::size_t turn_rows = 48;
constexpr std::size_t panel_registers = 2;
constexpr std::uint32_t exponent = 0x7f800000;  // bits; all of them are set in infinities and NaN alone

/// Sums that are in registers together: of some rows, and of a panel of two registers of columns.
template <std::size_t lanes>
constexpr std::size_t rows_at_once = lanes == 16 ? 12 : 6;

std::size_t whole(std::size_t count, std::size_t unit) { return (count + unit - 1) / unit * unit; }

/// Columns of some rows, which are multiplied by as many rows of a panel.
struct Columns {
  const float* data;
  std::size_t stride;
  std::size_t count;
};

/// Rows of one input. divisors: of these rows; null if they are not divided.
struct Input {
  std::span<const Columns> columns;
  const float* divisors;
};

/// Multiplies some rows by a panel. Sums of an input are divided, in place of its values.
template <std::size_t lanes>
struct MultiplyRows {
  static constexpr std::size_t num_rows = rows_at_once<lanes>;
  using Sums = Register<lanes>[num_rows][panel_registers];

  std::span<const Input> inputs;
  const float* panel;
  const float* bias;
  float* out;
  std::size_t out_stride;
  bool rectifies;
  bool& is_finite;

  [[gnu::always_inline]] void operator()() const {
    Sums sums;
#pragma GCC unroll 16
    for (std::size_t row = 0; row < num_rows; ++row) sums[row][0] = sums[row][1] = Register<lanes>{};
    const float* weights = panel;
    for (const Input& input : inputs) {
      for (const Columns& columns : input.columns) add(columns, weights, sums);
      if (input.divisors != nullptr) divide(input.divisors, sums);
    }
    put(sums);
  }

  [[gnu::always_inline]] static void add(const Columns& columns, const float*& weights, Sums& sums) {
    const float* const rows = columns.data;
    const std::size_t stride = columns.stride;
    for (std::size_t column = 0; column < columns.count; ++column, weights += panel_registers * lanes) {
      Register<lanes> low;
      Register<lanes> high;
      std::memcpy(&low, weights, sizeof low);
      std::memcpy(&high, weights + lanes, sizeof high);
#pragma GCC unroll 16
      for (std::size_t row = 0; row < num_rows; ++row) {
        const float value = rows[row * stride + column];
        sums[row][0] += value * low;
        sums[row][1] += value * high;
      }
    }
  }

  [[gnu::always_inline]] static void divide(const float* divisors, Sums& sums) {
#pragma GCC unroll 16
    for (std::size_t row = 0; row < num_rows; ++row) {
      sums[row][0] /= divisors[row];
      sums[row][1] /= divisors[row];
    }
  }

  [[gnu::always_inline]] void put(Sums& sums) const {
    RegisterWords<lanes> found{};
    for (std::size_t part = 0; part < panel_registers; ++part) {
      Register<lanes> biases;
      std::memcpy(&biases, bias + part * lanes, sizeof biases);
#pragma GCC unroll 16
      for (std::size_t row = 0; row < num_rows; ++row) {
        sums[row][part] += biases;
        finish(sums[row][part], found);
        std::memcpy(out + row * out_stride + part * lanes, &sums[row][part], sizeof sums[row][part]);
      }
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      if (found[lane] != 0) is_finite = false;
    }
  }

  /// Rectifies results if need be. found: gets bits where one is not finite.
  [[gnu::always_inline]] void finish(Register<lanes>& results, RegisterWords<lanes>& found) const {
    RegisterWords<lanes> bits;
    std::memcpy(&bits, &results, sizeof bits);
    if (rectifies) {
      // From -0 to negative infinity; no NaN.
      bits &= ~reinterpret_cast<RegisterWords<lanes>>(bits - 0x80000000U <= exponent);
      std::memcpy(&results, &bits, sizeof bits);
    }
    found |= reinterpret_cast<RegisterWords<lanes>>((bits & exponent) == exponent);
  }
};

/// Calls tasks compiled for an instruction set, with fused multiply-adds where it has them.
template <template <std::size_t> typename Task>
struct Fused {
#if defined(__x86_64__)
  [[gnu::target("avx2,fma")]] static void avx2(const Task<8>& task) { task(); }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] static void avx512(const Task<16>& task) { task(); }
#endif
};

template <template <std::size_t> typename Task, typename... Facts>
void run_fused(InstructionSet instructions, Facts&&... facts) {
#if defined(__x86_64__)
  if (instructions == InstructionSet::avx512) return Fused<Task>::avx512(Task<16>{facts...});
  if (instructions == InstructionSet::avx2) return Fused<Task>::avx2(Task<8>{facts...});
#endif
  static_cast<void>(instructions);
  Task<4>{facts...}();
}

std::size_t lanes_of(InstructionSet instructions) {
  std::size_t lanes = 0;
  with_instructions(instructions, [&](auto set) { lanes = decltype(set)::lanes; });
  return lanes;
}

/// Returns the number of columns of some parts, which have num_rows rows.
template <typename Value>
std::size_t columns_of(std::span<const Matrix<Value>> parts, std::size_t num_rows) {
  std::size_t count = 0;
  for (const Matrix<Value>& part : parts) {
    if (part.num_rows != num_rows) throw std::invalid_argument("split linear: all parts must have the same rows");
    count += part.num_columns;
  }
  return count;
}

/// The rows that are multiplied together, with copies of the last ones of a call: too few of them are followed by
/// zeros.
class RowGroup {
 public:
  RowGroup(std::span<const SplitRows> inputs, std::size_t in_dim, std::size_t num_rows)
      : split_(inputs), num_rows_(num_rows), copies_(num_rows * in_dim), divisors_(inputs.size() * num_rows, 1.0F) {
    std::size_t num_parts = 0;
    for (const SplitRows& input : inputs) num_parts += input.parts.size();
    columns_.resize(num_parts);
    inputs_.resize(inputs.size());
  }

  /// Moves to count rows from first on, at most num_rows.
  void move_to(std::size_t first, std::size_t count) {
    Columns* columns = columns_.data();
    float* copy = copies_.data();
    for (std::size_t number = 0; number < split_.size(); ++number) {
      const SplitRows& split = split_[number];
      inputs_[number].columns = {columns, split.parts.size()};
      for (const Matrix<const float>& part : split.parts) {
        const float* data = part.data + first * part.stride;
        if (count < num_rows_) {
          for (std::size_t row = 0; row < count; ++row) {
            std::copy_n(data + row * part.stride, part.num_columns, copy + row * part.num_columns);
          }
          data = copy;
          copy += num_rows_ * part.num_columns;
        }
        *columns++ = {data, count < num_rows_ ? part.num_columns : part.stride, part.num_columns};
      }
      inputs_[number].divisors = divisors_at(number, first, count);
    }
  }

  [[nodiscard]] std::span<const Input> inputs() const noexcept { return inputs_; }

 private:
  [[nodiscard]] const float* divisors_at(std::size_t number, std::size_t first, std::size_t count) {
    const std::span<const float> divisors = split_[number].divisors;
    if (divisors.empty() || count == num_rows_) return divisors.empty() ? nullptr : divisors.data() + first;
    float* const copy = divisors_.data() + number * num_rows_;
    std::copy_n(divisors.data() + first, count, copy);
    return copy;
  }

  std::span<const SplitRows> split_;
  std::size_t num_rows_;
  std::vector<Columns> columns_;
  std::vector<Input> inputs_;
  std::vector<float> copies_;
  std::vector<float> divisors_;
};

/// Copies rows to the parts from row `first` on.
void put_rows(const float* rows, std::size_t stride, std::size_t num_rows, std::size_t first,
              std::span<const Matrix<float>> out) {
  for (const Matrix<float>& part : out) {
    for (std::size_t row = 0; row < num_rows; ++row) {
      std::copy_n(rows + row * stride, part.num_columns, part.data + (first + row) * part.stride);
    }
    rows += part.num_columns;
  }
}

}  // namespace

SplitLinear::SplitLinear(const Matrix<const float>& weight, std::span<const float> bias, InstructionSet instructions)
    : in_dim_(weight.num_columns), out_dim_(weight.num_rows), instructions_(instructions) {
  if (in_dim_ == 0 || out_dim_ == 0 || (!bias.empty() && bias.size() != out_dim_)) {
    throw std::invalid_argument("split linear: weight and bias must fit each other");
  }
  panel_columns_ = panel_registers * lanes_of(instructions);
  padded_out_dim_ = whole(out_dim_, panel_columns_);
  constexpr std::size_t line_floats = sizeof(Line) / sizeof(float);
  weight_.resize(whole(in_dim_ * padded_out_dim_, line_floats) / line_floats);
  bias_.resize(whole(padded_out_dim_, line_floats) / line_floats);
  auto* const packed = reinterpret_cast<float*>(weight_.data());
  for (std::size_t row = 0; row < out_dim_; ++row) {
    float* const to = packed + row / panel_columns_ * panel_columns_ * in_dim_ + row % panel_columns_;
    for (std::size_t column = 0; column < in_dim_; ++column) {
      to[column * panel_columns_] = weight.data[row * weight.stride + column];
    }
  }
  std::copy(bias.begin(), bias.end(), reinterpret_cast<float*>(bias_.data()));
}

bool SplitLinear::apply(std::span<const SplitRows> inputs, bool rectifies, std::span<const Matrix<float>> out,
                        unsigned num_threads) const {
  const std::size_t num_rows = out.empty() ? 0 : out.front().num_rows;
  std::size_t num_columns = 0;
  for (const SplitRows& input : inputs) {
    num_columns += columns_of(input.parts, num_rows);
    if (!input.divisors.empty() && input.divisors.size() != num_rows) {
      throw std::invalid_argument("split linear: there must be a divisor per row");
    }
    if (!input.divisors.empty() && &input != &inputs.front()) {
      throw std::invalid_argument("split linear: only the first input may be divided");
    }
  }
  if (num_columns != in_dim_ || columns_of(out, num_rows) != out_dim_) {
    throw std::invalid_argument("split linear: rows must be as wide as the weight");
  }
  const std::size_t step = instructions_ == InstructionSet::avx512 ? rows_at_once<16> : rows_at_once<8>;
  const std::size_t num_turns = (num_rows + turn_rows - 1) / turn_rows;
  const auto* const weight = reinterpret_cast<const float*>(weight_.data());
  const auto* const bias = reinterpret_cast<const float*>(bias_.data());
  const std::size_t num_lanes = std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(1, num_turns));
  std::vector<RowGroup> groups(num_lanes, RowGroup(inputs, in_dim_, step));
  std::vector<float> results(num_lanes * step * padded_out_dim_);
  std::atomic<bool> all_finite = true;
  share_turns(num_turns, num_lanes, [&](std::size_t turn, std::size_t lane) {
    RowGroup& group = groups[lane];
    float* const sums = results.data() + lane * step * padded_out_dim_;
    bool is_finite = true;
    const std::size_t end = std::min(num_rows, (turn + 1) * turn_rows);
    for (std::size_t row = turn * turn_rows; row < end; row += step) {
      const std::size_t count = std::min(step, end - row);
      group.move_to(row, count);
      for (std::size_t column = 0; column < padded_out_dim_; column += panel_columns_) {
        run_fused<MultiplyRows>(instructions_, group.inputs(), weight + column * in_dim_, bias + column, sums + column,
                                padded_out_dim_, rectifies, is_finite);
      }
      put_rows(sums, padded_out_dim_, count, row, out);
    }
    // Relaxed: the end of the threads' work publishes it.
    if (!is_finite) all_finite.store(false, std::memory_order_relaxed);
  });
  return all_finite.load(std::memory_order_relaxed);
}

}  // namespace diskhop
