// Slots, coefficients and checks shared by the attention kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "base/turns.hpp"
#include "diskhop/nn/attention.hpp"

namespace diskhop {

/// Targets per turn: small enough that no thread waits for another one's turn, even with a hub in it.
inline constexpr std::size_t turn_targets = 256;

/// Fewer values in total take less time than starting another thread.
inline constexpr std::size_t min_thread_values = 1 << 15;

[[nodiscard]] inline std::size_t first_slot(const NeighborLists& lists, std::size_t target) {
  return static_cast<std::size_t>(lists.indptr[target]) + (lists.has_loops ? target : 0);
}

/// The end of a target's slots, counted as its edges are: one more with a loop.
[[nodiscard]] inline std::size_t slots_end(const NeighborLists& lists, std::size_t end_edge) {
  return end_edge + (lists.has_loops ? 1 : 0);
}

/// Row of a slot of `target`: that of edge `edge`, or the target's own at the end of its list.
[[nodiscard, gnu::always_inline]] inline std::size_t row_of_slot(const NeighborLists& lists, std::size_t target,
                                                                 std::size_t edge, std::size_t end_edge) {
  return edge < end_edge ? static_cast<std::size_t>(lists.sources[edge]) : target;
}

/// Factor of a row: 0 if dropout has set the sign.
[[nodiscard, gnu::always_inline]] inline float coefficient(float value, const SlotWeights& weights) {
  return weights.is_attention && std::signbit(value) ? 0.0F : value * weights.scale;
}

inline void require_attention(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(std::string("attention: ") + rule);
}

inline void check_indptr(const NeighborLists& lists, TargetRange range) {
  require_attention(!lists.indptr.empty() && lists.indptr.front() == 0, "indptr must start with 0");
  require_attention(range.begin <= range.end && range.end <= lists.num_targets(), "the range must be of targets");
  bool ascends = lists.indptr[range.begin] >= 0;
  for (std::size_t target = range.begin; target < range.end; ++target) {
    ascends &= lists.indptr[target] <= lists.indptr[target + 1];
  }
  require_attention(ascends && lists.indptr.back() >= lists.indptr[range.end], "indptr must ascend");
}

/// Checked before anything is written: the kernels use these as indices.
inline void check_lists(const NeighborLists& lists, TargetRange range, std::size_t num_rows) {
  check_indptr(lists, range);
  require_attention(static_cast<std::size_t>(lists.indptr.back()) <= lists.sources.size(),
                    "indptr must end within the sources");
  require_attention(!lists.has_loops || range.end <= num_rows, "targets must be the first of the rows");
  std::uint32_t largest = 0;
  // A negative id is a large one without its sign.
  for (std::int32_t edge = lists.indptr[range.begin]; edge < lists.indptr[range.end]; ++edge) {
    largest = std::max(largest, static_cast<std::uint32_t>(lists.sources[static_cast<std::size_t>(edge)]));
  }
  if (largest >= num_rows && largest > 0) {
    throw std::out_of_range("attention: source " + std::to_string(static_cast<std::int32_t>(largest)) +
                            " is outside the " + std::to_string(num_rows) + " rows");
  }
}

inline void check_slots(const NeighborLists& lists, const Matrix<const float>& matrix) {
  require_attention(
      matrix.num_rows == lists.num_slots() && matrix.num_columns > 0 && matrix.stride == matrix.num_columns,
      "attention and its gradient must have a row for each slot, one after the other");
}

[[nodiscard]] inline std::size_t useful_threads(unsigned num_threads, std::size_t num_values) {
  return std::clamp<std::size_t>(num_threads, 1, 1 + num_values / min_thread_values);
}

/// Calls work(range) for turns of the targets.
template <typename Work>
void share_targets(TargetRange range, std::size_t num_threads, const Work& work) {
  const std::size_t num_turns = (range.end - range.begin + turn_targets - 1) / turn_targets;
  share_turns(num_turns, num_threads, [&](std::size_t turn, std::size_t) {
    const std::size_t begin = range.begin + turn * turn_targets;
    work(TargetRange{begin, std::min(range.end, begin + turn_targets)});
  });
}

/// Rows of one of num_shares threads, assigned in blocks. One thread makes all additions to a row, in the order of the
/// slots.
struct RowShare {
  std::size_t share = 0;
  std::size_t num_shares = 1;

  static constexpr std::size_t block_rows = 64;

  [[nodiscard, gnu::always_inline]] bool owns(std::size_t row) const {
    return num_shares == 1 ||
           static_cast<std::uint32_t>(row / block_rows) % static_cast<std::uint32_t>(num_shares) == share;
  }

  /// Sets the share's rows to zero.
  void clear(const Matrix<float>& matrix) const {
    for (std::size_t first = share * block_rows; first < matrix.num_rows; first += num_shares * block_rows) {
      for (std::size_t row = first; row < std::min(matrix.num_rows, first + block_rows); ++row) {
        std::fill_n(matrix.data + row * matrix.stride, matrix.num_columns, 0.0F);
      }
    }
  }
};

template <typename Value>
[[nodiscard]] Matrix<const Value> as_const(const Matrix<Value>& matrix) {
  return {matrix.data, matrix.num_rows, matrix.num_columns, matrix.stride};
}

}  // namespace diskhop
