#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/turns.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

constexpr unsigned position_bits = 32;
constexpr unsigned max_digit_bits = 11;
// Items per turn: enough that its start, without prefetching, does not matter.
constexpr std::size_t turn_items = 1024;
// Prefetch distance, in items: rows are at random places. Measured: 4 to 16 take the same time.
constexpr std::size_t items_ahead = 8;
constexpr std::size_t line_bytes = 64;
// Fewer values per thread take less time than starting another thread.
constexpr std::size_t min_thread_values = 1 << 15;

void require(bool fits, const char* rule) {
  if (!fits) throw std::invalid_argument(std::string("update: ") + rule);
}

[[gnu::always_inline]] inline std::size_t row_of(std::uint64_t item) { return item >> position_bits; }
[[gnu::always_inline]] inline std::size_t position_of(std::uint64_t item) { return item & 0xffff'ffff; }

// A plain loop, which the compiler vectorises: there is no root of vector types.
template <std::size_t num_values>
[[gnu::always_inline]] inline void take_roots(Register<num_values>& values) {
  float lanes[num_values];
  std::memcpy(lanes, &values, sizeof lanes);
  for (float& lane : lanes) lane = std::sqrt(lane);
  std::memcpy(&values, lanes, sizeof values);
}

[[gnu::always_inline]] inline void prefetch_row(const float* row, std::size_t num_columns) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  const std::size_t num_bytes = num_columns * sizeof(float);
  for (std::size_t offset = 0; offset < num_bytes; offset += line_bytes) __builtin_prefetch(bytes + offset);
  __builtin_prefetch(bytes + num_bytes - 1);
}

// lanes: floats per register. A row's sum has sixteen lanes for all of them.
template <std::size_t lanes>
struct UpdateRows {
  using Values = Register<lanes>;
  static constexpr std::size_t parts = vector_floats / lanes;

  const Matrix<float>& values;
  const Matrix<float>& squares;
  const Matrix<const float>& grads;
  const std::uint64_t* items;
  std::size_t num_items;
  const AdagradStep& step;

  // Updates the rows with their first item in [begin, end). sum: memory for a row.
  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end, float* sum) const {
    const bool is_by_row = squares.num_columns != values.num_columns;
    std::size_t item = begin;
    while (item < end) {
      const std::size_t row = row_of(items[item]);
      const float* grad = grad_of(item);
      prefetch(item);
      std::size_t next = item + 1;
      if (next < num_items && row_of(items[next]) == row) {
        std::copy_n(grad, values.num_columns, sum);
        for (; next < num_items && row_of(items[next]) == row; ++next) {
          prefetch(next);
          const float* more = grad_of(next);
          for (std::size_t column = 0; column < values.num_columns; ++column) sum[column] += more[column];
        }
        grad = sum;
      }
      if (is_by_row) {
        update_by_row(row, grad);
      } else {
        update_by_element(row, grad);
      }
      item = next;
    }
  }

 private:
  [[gnu::always_inline]] const float* grad_of(std::size_t item) const {
    return grads.data + position_of(items[item]) * grads.stride;
  }

  [[gnu::always_inline]] void prefetch(std::size_t item) const {
    const std::size_t ahead = item + items_ahead;
    if (ahead >= num_items) return;
    prefetch_row(grad_of(ahead), grads.num_columns);
    const std::size_t row = row_of(items[ahead]);
    if (row == row_of(items[ahead - 1])) return;
    prefetch_row(values.data + row * values.stride, values.num_columns);
    prefetch_row(squares.data + row * squares.stride, squares.num_columns);
  }

  // Calls visit(part of a vector, first column, number of columns, gradients) for the registers of a row. The last
  // vector reaches back to be whole; the columns that it shares with the previous one get gradients of 0, which change
  // nothing.
  template <typename Visit>
  [[gnu::always_inline]] void for_registers(const float* grad, const Visit& visit) const {
    const std::size_t num_columns = values.num_columns;
    Values found;
    if (num_columns < vector_floats) {
      for (std::size_t first = 0; first < num_columns; first += lanes) {
        const std::size_t count = std::min(lanes, num_columns - first);
        load_register<lanes>(grad + first, count, found);
        visit(first / lanes, first, count, found);
      }
      return;
    }
    const std::size_t rest = num_columns % vector_floats;
    for (std::size_t first = 0; first < num_columns - rest; first += vector_floats) {
      for (std::size_t part = 0; part < parts; ++part) {
        load_register<lanes>(grad + first + part * lanes, lanes, found);
        visit(part, first + part * lanes, lanes, found);
      }
    }
    if (rest == 0) return;
    constexpr std::uint32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t first = num_columns - vector_floats + part * lanes;
      RegisterWords<lanes> numbered;
      std::memcpy(&numbered, numbers + part * lanes, sizeof numbered);
      load_register<lanes>(grad + first, lanes, found);
      found = numbered >= static_cast<std::uint32_t>(vector_floats - rest) ? found : Values{};
      visit(part, first, lanes, found);
    }
  }

  // values -= change. A gradient of 0 may give NaN (0 / 0) and is masked.
  [[gnu::always_inline]] static void subtract(float* of_values, std::size_t count, const Values& grads,
                                              const Values& change) {
    Values value;
    load_register<lanes>(of_values, count, value);
    store_register<lanes>(of_values, count, value - (grads != 0 ? change : Values{}));
  }

  [[gnu::always_inline]] void update_by_element(std::size_t row, const float* grad) const {
    float* const of_values = values.data + row * values.stride;
    float* const of_squares = squares.data + row * squares.stride;
    for_registers(grad, [&](std::size_t, std::size_t first, std::size_t count, const Values& found)
                            __attribute__((always_inline)) {
                              Values square;
                              load_register<lanes>(of_squares + first, count, square);
                              square += found * found;
                              store_register<lanes>(of_squares + first, count, square);
                              take_roots<lanes>(square);
                              subtract(of_values + first, count, found, step.lr * found / (square + step.epsilon));
                            });
  }

  [[gnu::always_inline]] void update_by_row(std::size_t row, const float* grad) const {
    Floats<lanes> sums{};
    for_registers(grad, [&](std::size_t part, std::size_t, std::size_t, const Values& found)
                            __attribute__((always_inline)) { sums.parts[part] += found * found; });
    float& square = squares.data[row * squares.stride];
    square += sum_of(sums) / static_cast<float>(values.num_columns);
    const float scale = step.lr / (std::sqrt(square) + step.epsilon);
    float* const of_values = values.data + row * values.stride;
    for_registers(grad,
                  [&](std::size_t, std::size_t first, std::size_t count, const Values& found)
                      __attribute__((always_inline)) { subtract(of_values + first, count, found, found * scale); });
  }
};

}  // namespace

RowUpdater::RowUpdater(unsigned num_threads, InstructionSet instructions)
    : num_threads_(std::max(1U, num_threads)), instructions_(instructions) {}

void RowUpdater::sort(std::span<const std::int64_t> rows, std::size_t num_rows, std::size_t num_lanes) {
  const std::size_t num_items = rows.size();
  if (items_.size() < num_items) {
    items_.resize(num_items);
    spare_.resize(num_items);
  }
  const auto key_bits = static_cast<unsigned>(std::bit_width(num_rows - 1));
  const unsigned num_passes = std::max(1U, (key_bits + max_digit_bits - 1) / max_digit_bits);
  const unsigned digit_bits = (key_bits + num_passes - 1) / num_passes;
  const std::size_t num_digits = std::size_t{1} << digit_bits;
  places_.resize(num_lanes * num_digits);
  // Each lane has its own range; in the order of the lanes, equal digits keep their order.
  const auto for_lanes = [&](const auto& work) {
    share_turns(num_lanes, num_lanes, [&](std::size_t lane, std::size_t) {
      work(num_items * lane / num_lanes, num_items * (lane + 1) / num_lanes, places_.data() + lane * num_digits);
    });
  };
  for_lanes([&](std::size_t begin, std::size_t end, std::size_t* largest) {
    *largest = 0;
    for (std::size_t position = begin; position < end; ++position) {
      // A negative row is a large one without its sign.
      const auto row = static_cast<std::uint64_t>(rows[position]);
      *largest = std::max<std::size_t>(*largest, row);
      items_[position] = row << position_bits | position;
    }
  });
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    if (places_[lane * num_digits] < num_rows) continue;
    const auto bad = std::find_if(rows.begin(), rows.end(),
                                  [&](std::int64_t row) { return static_cast<std::uint64_t>(row) >= num_rows; });
    throw std::invalid_argument("update: row " + std::to_string(*bad) + " at position " +
                                std::to_string(bad - rows.begin()) + " is outside the " + std::to_string(num_rows) +
                                " rows");
  }
  for (unsigned pass = 0; pass < num_passes && key_bits > 0; ++pass) {
    const unsigned shift = position_bits + pass * digit_bits;
    const auto digit_of = [&](std::uint64_t item) { return item >> shift & (num_digits - 1); };
    for_lanes([&](std::size_t begin, std::size_t end, std::size_t* counts) {
      std::fill_n(counts, num_digits, 0);
      for (std::size_t at = begin; at < end; ++at) ++counts[digit_of(items_[at])];
    });
    std::size_t place = 0;
    for (std::size_t digit = 0; digit < num_digits; ++digit) {
      for (std::size_t lane = 0; lane < num_lanes; ++lane) {
        place += std::exchange(places_[lane * num_digits + digit], place);
      }
    }
    for_lanes([&](std::size_t begin, std::size_t end, std::size_t* places) {
      for (std::size_t at = begin; at < end; ++at) spare_[places[digit_of(items_[at])]++] = items_[at];
    });
    items_.swap(spare_);
  }
}

void RowUpdater::update(const Matrix<float>& values, const Matrix<float>& squares, std::span<const std::int64_t> rows,
                        const Matrix<const float>& grads, const AdagradStep& step) {
  require(values.num_rows <= std::size_t{1} << 32 && rows.size() < std::size_t{1} << position_bits,
          "there may be 2^32 rows at most");
  require(grads.num_rows == rows.size(), "there must be a row of gradients for each row that is named");
  require(grads.num_columns == values.num_columns, "gradients must have the columns of the values");
  require(
      squares.num_rows == values.num_rows && (squares.num_columns == 1 || squares.num_columns == values.num_columns),
      "squares must have the rows of the values, and one column or all of theirs");
  if (rows.empty()) return;
  require(values.num_rows > 0, "an empty table has no row to update");
  const std::lock_guard alone(mutex_);
  const std::size_t num_items = rows.size();
  const std::size_t num_lanes =
      std::clamp<std::size_t>(num_threads_, 1, 1 + num_items * values.num_columns / min_thread_values);
  sort(rows, values.num_rows, num_lanes);
  if (values.num_columns == 0) return;
  // Padded, so that no lane writes a cache line of another.
  const std::size_t sum_floats = (values.num_columns / vector_floats + 2) * vector_floats;
  sums_.resize(std::max(sums_.size(), num_lanes * sum_floats));
  const std::uint64_t* const items = items_.data();
  const std::size_t num_turns = (num_items + turn_items - 1) / turn_items;
  with_instructions(instructions_, [&](auto set) {
    const UpdateRows<set.lanes> task{values, squares, grads, items, num_items, step};
    share_turns(num_turns, num_lanes, [&](std::size_t turn, std::size_t lane) {
      std::size_t begin = turn * turn_items;
      // A row belongs to the turn in which it starts.
      if (begin > 0 && row_of(items[begin]) == row_of(items[begin - 1])) {
        const std::uint64_t last_of_row = items[begin] | 0xffff'ffff;
        begin = static_cast<std::size_t>(std::upper_bound(items + begin, items + num_items, last_of_row) - items);
      }
      set.run(task, begin, std::min(num_items, (turn + 1) * turn_items), sums_.data() + lane * sum_floats);
    });
  });
}

}  // namespace diskhop
