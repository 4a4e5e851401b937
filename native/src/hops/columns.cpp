#include "diskhop/hops/columns.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/turns.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

// Rows copied through all parts together: in each part they are a run of cache lines, and whole rows stay in the cache
// while their columns arrive.
constexpr std::size_t block_rows = 64;
// Copying fewer bytes per thread takes less time than waking another.
constexpr std::size_t min_thread_bytes = 128 << 10;

/// Columns of a part that belong to the matrix, and where they begin in it.
struct Columns {
  std::size_t part;
  std::size_t begin;
  std::size_t count;
};

/// Returns the parts' places in a matrix. Throws std::invalid_argument for sizes that do not match.
template <typename Part>
std::vector<Columns> places_of(std::span<const Part> parts, std::size_t num_rows, std::size_t num_columns) {
  std::vector<Columns> places;
  std::size_t begin = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].num_rows != num_rows) {
      throw std::invalid_argument("columns: part " + std::to_string(part) + " must have " + std::to_string(num_rows) +
                                  " rows, got " + std::to_string(parts[part].num_rows));
    }
    const std::size_t count = std::min(parts[part].num_columns, num_columns - begin);
    if (count > 0) places.push_back({.part = part, .begin = begin, .count = count});
    begin += count;
  }
  if (begin < num_columns) {
    throw std::invalid_argument("columns: the parts must have " + std::to_string(num_columns) + " columns, got " +
                                std::to_string(begin));
  }
  return places;
}

/// Calls do_rows(begin, end) for blocks of rows, in several threads where there is enough to do.
template <typename DoRows>
void share_rows(std::size_t num_rows, std::size_t num_columns, unsigned num_threads, const DoRows& do_rows) {
  const std::size_t useful_threads = 1 + num_rows * num_columns * sizeof(float) / min_thread_bytes;
  const std::size_t threads = std::min<std::size_t>(num_threads, useful_threads);
  if (threads <= 1) return do_rows(std::size_t{0}, num_rows);
  share_turns((num_rows + block_rows - 1) / block_rows, threads, [&](std::size_t turn, std::size_t) {
    do_rows(turn * block_rows, std::min(num_rows, (turn + 1) * block_rows));
  });
}

/// Divides rows by their divisors. first: row of the part that belongs to the first row. lacks_rows: whether the part
/// has only rows whose divisor is not 0.
struct DivideRows {
  const Matrix<const float>& part;
  const Columns& place;
  const Matrix<float>& out;
  const float* divisors;
  std::size_t first;
  bool lacks_rows;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    const float* from = part.data + first * part.stride;
    for (std::size_t row = begin; row < end; ++row) {
      float* const to = out.data + row * out.stride + place.begin;
      const float divisor = divisors[row];
      if (divisor == 0) {
        std::fill_n(to, place.count, 0.0F);
        if (!lacks_rows) from += part.stride;
        continue;
      }
      for (std::size_t column = 0; column < place.count; ++column) to[column] = from[column] / divisor;
      from += part.stride;
    }
  }
};

std::size_t num_divided(std::span<const float> divisors) {
  return divisors.size() - static_cast<std::size_t>(std::count(divisors.begin(), divisors.end(), 0.0F));
}

}  // namespace

void join_columns(std::span<const Matrix<const float>> parts, std::span<const float> divisors, const Matrix<float>& out,
                  unsigned num_threads, InstructionSet instructions) {
  if (!divisors.empty() && divisors.size() != out.num_rows) {
    throw std::invalid_argument("columns: there must be a divisor per row");
  }
  const bool lacks_rows = !divisors.empty() && !parts.empty() && parts.front().num_rows != out.num_rows;
  const std::vector<Columns> places =
      places_of(parts, lacks_rows ? num_divided(divisors) : out.num_rows, out.num_columns);
  share_rows(out.num_rows, out.num_columns, num_threads, [&](std::size_t begin, std::size_t end) {
    // Several blocks one after the other if there is one thread.
    for (std::size_t first = begin; first < end; first += block_rows) {
      const std::size_t last = std::min(end, first + block_rows);
      const std::size_t first_of_parts = lacks_rows ? num_divided(divisors.first(first)) : first;
      for (const Columns& place : places) {
        const Matrix<const float>& part = parts[place.part];
        if (!divisors.empty()) {
          run_with(instructions, DivideRows{part, place, out, divisors.data(), first_of_parts, lacks_rows}, first,
                   last);
          continue;
        }
        for (std::size_t row = first; row < last; ++row) {
          std::memcpy(out.data + row * out.stride + place.begin, part.data + row * part.stride,
                      place.count * sizeof(float));
        }
      }
    }
  });
}

void split_columns(const Matrix<const float>& rows, std::span<const Matrix<float>> parts, unsigned num_threads) {
  const std::vector<Columns> places = places_of(parts, rows.num_rows, rows.num_columns);
  share_rows(rows.num_rows, rows.num_columns, num_threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t first = begin; first < end; first += block_rows) {
      const std::size_t last = std::min(end, first + block_rows);
      for (const Columns& place : places) {
        const Matrix<float>& part = parts[place.part];
        for (std::size_t row = first; row < last; ++row) {
          std::memcpy(part.data + row * part.stride, rows.data + row * rows.stride + place.begin,
                      place.count * sizeof(float));
        }
      }
    }
  });
}

}  // namespace diskhop
