#include "diskhop/nn/split_linear.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
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

/// Rows of a call in groups that are multiplied together. Rows that leave the first input out follow the others.
class RowGroups {
 public:
  /// Up to num_rows consecutive numbers in the order of rows, all of which leave the first input out, or none.
  /// first_place: how many rows of that kind are before them.
  struct Group {
    std::span<const std::size_t> rows;
    std::size_t first_place;
    bool leaves_out;
  };

  RowGroups(std::span<const SplitRows> inputs, std::size_t num_rows, std::size_t group_rows)
      : group_rows_(group_rows), order_(num_rows) {
    const std::span<const float> divisors = inputs.empty() ? std::span<const float>{} : inputs.front().divisors;
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    num_whole_ = num_rows;
    if (divisors.empty()) return;
    const auto end =
        std::stable_partition(order_.begin(), order_.end(), [&](std::size_t row) { return divisors[row] != 0; });
    num_whole_ = static_cast<std::size_t>(end - order_.begin());
  }

  [[nodiscard]] std::size_t size() const noexcept {
    return groups_of(num_whole_) + groups_of(order_.size() - num_whole_);
  }

  [[nodiscard]] Group operator[](std::size_t number) const {
    const bool leaves_out = number >= groups_of(num_whole_);
    const std::span<const std::size_t> rows(order_);
    const std::span<const std::size_t> alike = leaves_out ? rows.subspan(num_whole_) : rows.first(num_whole_);
    const std::size_t first = (number - (leaves_out ? groups_of(num_whole_) : 0)) * group_rows_;
    return {alike.subspan(first, std::min(group_rows_, alike.size() - first)), first, leaves_out};
  }

 private:
  [[nodiscard]] std::size_t groups_of(std::size_t num_rows) const { return (num_rows + group_rows_ - 1) / group_rows_; }

  std::size_t group_rows_;
  std::vector<std::size_t> order_;
  std::size_t num_whole_ = 0;
};

/// Inputs of a group's rows: where they lie, if they are as many as can be and follow each other, or copies. Too few
/// are followed by zeros. lacks_rows: whether the first input has only rows that do not leave it out.
class GroupInputs {
 public:
  GroupInputs(std::span<const SplitRows> inputs, std::size_t in_dim, std::size_t num_rows, bool lacks_rows)
      : split_(inputs),
        num_rows_(num_rows),
        lacks_rows_(lacks_rows),
        copies_(num_rows * in_dim),
        divisors_(inputs.size() * num_rows, 1.0F) {
    std::size_t num_parts = 0;
    for (const SplitRows& input : inputs) num_parts += input.parts.size();
    columns_.resize(num_parts);
    inputs_.resize(inputs.size());
  }

  void move_to(const RowGroups::Group& group) {
    const std::span<const std::size_t> rows = group.rows;
    first_input_ = group.leaves_out ? 1 : 0;
    const bool is_small = rows.size() < num_rows_;
    const bool is_scattered = rows.back() - rows.front() >= num_rows_;
    Columns* columns = columns_.data();
    float* copy = copies_.data();
    for (std::size_t number = first_input_; number < split_.size(); ++number) {
      const SplitRows& split = split_[number];
      const bool follow_each_other = number == 0 && lacks_rows_;
      const bool is_copied = is_small || (is_scattered && !follow_each_other);
      const std::size_t first_row = follow_each_other ? group.first_place : rows.front();
      inputs_[number].columns = {columns, split.parts.size()};
      for (const Matrix<const float>& part : split.parts) {
        if (is_copied) {
          *columns++ = {copy, part.num_columns, part.num_columns};
          for (std::size_t place = 0; place < rows.size(); ++place) {
            const std::size_t row = follow_each_other ? first_row + place : rows[place];
            std::copy_n(part.data + row * part.stride, part.num_columns, copy + place * part.num_columns);
          }
          std::fill(copy + rows.size() * part.num_columns, copy + num_rows_ * part.num_columns, 0.0F);
          copy += num_rows_ * part.num_columns;
        } else {
          *columns++ = {part.data + first_row * part.stride, part.stride, part.num_columns};
        }
      }
      inputs_[number].divisors = divisors_of(number, rows, is_small || is_scattered);
    }
  }

  /// The inputs that are multiplied.
  [[nodiscard]] std::span<const Input> inputs() const { return std::span(inputs_).subspan(first_input_); }

  /// Columns of the inputs that are left out.
  [[nodiscard]] std::size_t num_left_out() const {
    std::size_t count = 0;
    for (std::size_t number = 0; number < first_input_; ++number) {
      for (const Matrix<const float>& part : split_[number].parts) count += part.num_columns;
    }
    return count;
  }

 private:
  [[nodiscard]] const float* divisors_of(std::size_t number, std::span<const std::size_t> rows, bool is_copied) {
    const std::span<const float> divisors = split_[number].divisors;
    if (divisors.empty()) return nullptr;
    if (!is_copied) return divisors.data() + rows.front();
    float* const copy = divisors_.data() + number * num_rows_;
    for (std::size_t place = 0; place < rows.size(); ++place) copy[place] = divisors[rows[place]];
    return copy;
  }

  std::span<const SplitRows> split_;
  std::size_t num_rows_;
  bool lacks_rows_;
  std::size_t first_input_ = 0;
  std::vector<Columns> columns_;
  std::vector<Input> inputs_;
  std::vector<float> copies_;
  std::vector<float> divisors_;
};

/// Copies values to rows of the parts.
void put_rows(const float* values, std::size_t stride, std::span<const std::size_t> rows,
              std::span<const Matrix<float>> out) {
  for (const Matrix<float>& part : out) {
    for (std::size_t place = 0; place < rows.size(); ++place) {
      std::copy_n(values + place * stride, part.num_columns, part.data + rows[place] * part.stride);
    }
    values += part.num_columns;
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
  bool lacks_rows = false;
  for (const SplitRows& input : inputs) {
    std::size_t input_rows = num_rows;
    if (!input.divisors.empty() && input.divisors.size() != num_rows) {
      throw std::invalid_argument("split linear: there must be a divisor per row");
    }
    if (!input.divisors.empty() && !input.parts.empty() && input.parts.front().num_rows != num_rows) {
      lacks_rows = true;
      input_rows -= static_cast<std::size_t>(std::count(input.divisors.begin(), input.divisors.end(), 0.0F));
    }
    num_columns += columns_of(input.parts, input_rows);
    if (!input.divisors.empty() && &input != &inputs.front()) {
      throw std::invalid_argument("split linear: only the first input may be divided");
    }
  }
  if (num_columns != in_dim_ || columns_of(out, num_rows) != out_dim_) {
    throw std::invalid_argument("split linear: rows must be as wide as the weight");
  }
  const std::size_t step = instructions_ == InstructionSet::avx512 ? rows_at_once<16> : rows_at_once<8>;
  const RowGroups groups(inputs, num_rows, step);
  const std::size_t turn_groups = turn_rows / step;
  const std::size_t num_turns = (groups.size() + turn_groups - 1) / turn_groups;
  const auto* const weight = reinterpret_cast<const float*>(weight_.data());
  const auto* const bias = reinterpret_cast<const float*>(bias_.data());
  const std::size_t num_lanes = std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(1, num_turns));
  std::vector<GroupInputs> lanes(num_lanes, GroupInputs(inputs, in_dim_, step, lacks_rows));
  std::vector<float> results(num_lanes * step * padded_out_dim_);
  std::atomic<bool> all_finite = true;
  share_turns(num_turns, num_lanes, [&](std::size_t turn, std::size_t lane) {
    GroupInputs& of_group = lanes[lane];
    float* const sums = results.data() + lane * step * padded_out_dim_;
    bool is_finite = true;
    const std::size_t end = std::min(groups.size(), (turn + 1) * turn_groups);
    for (std::size_t number = turn * turn_groups; number < end; ++number) {
      const RowGroups::Group group = groups[number];
      of_group.move_to(group);
      const float* const panels = weight + of_group.num_left_out() * panel_columns_;
      for (std::size_t column = 0; column < padded_out_dim_; column += panel_columns_) {
        run_fused<MultiplyRows>(instructions_, of_group.inputs(), panels + column * in_dim_, bias + column,
                                sums + column, padded_out_dim_, rectifies, is_finite);
      }
      put_rows(sums, padded_out_dim_, group.rows, out);
    }
    // Relaxed: the end of the threads' work publishes it.
    if (!is_finite) all_finite.store(false, std::memory_order_relaxed);
  });
  return all_finite.load(std::memory_order_relaxed);
}

}  // namespace diskhop
