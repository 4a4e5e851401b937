#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "diskhop/rows/rows.hpp"

namespace diskhop {
namespace {

// Copying fewer bytes per thread takes less time than starting another thread.
constexpr std::uint64_t min_thread_bytes = 128 << 10;
// Bytes per turn of a thread: small, so that a page fault of a mapped file delays only one turn.
constexpr std::uint64_t turn_bytes = 64 << 10;
constexpr std::uint64_t line_bytes = 64;
// Distance of prefetching, in bytes.
constexpr std::uint64_t ahead_bytes = 4 << 10;

void check_rows(std::span<const std::int64_t> rows, std::uint64_t count, std::uint64_t num_rows, const char* name) {
  if (rows.empty()) {
    if (count > num_rows) {
      throw std::out_of_range(std::string(name) + " has " + std::to_string(num_rows) + " rows, not " +
                              std::to_string(count));
    }
    return;
  }
  if (rows.size() != count) {
    throw std::invalid_argument(std::string(name) + " rows: " + std::to_string(rows.size()) + " given for " +
                                std::to_string(count) + " copies");
  }
  for (const std::int64_t row : rows) {
    if (static_cast<std::uint64_t>(row) >= num_rows) {
      throw std::out_of_range(std::string(name) + " row " + std::to_string(row) + " is outside its " +
                              std::to_string(num_rows) + " rows");
    }
  }
}

void check_distinct(std::span<const std::int64_t> rows, std::uint64_t num_rows) {
  std::vector<bool> is_taken(rows.empty() ? 0 : num_rows);
  for (const std::int64_t row : rows) {
    if (is_taken[static_cast<std::uint64_t>(row)]) {
      throw std::invalid_argument("destination row " + std::to_string(row) + " is named twice");
    }
    is_taken[static_cast<std::uint64_t>(row)] = true;
  }
}

}  // namespace

std::uint64_t copy_rows(const RowArray& from, std::span<const std::int64_t> from_rows, std::byte* to,
                        std::uint64_t num_to_rows, std::span<const std::int64_t> to_rows, std::uint64_t count,
                        std::uint64_t row_bytes, unsigned num_threads) {
  check_rows(from_rows, count, from.num_rows, "source");
  check_rows(to_rows, count, num_to_rows, "destination");
  check_distinct(to_rows, num_to_rows);
  if (count == 0 || row_bytes == 0) return 0;

  const std::uint64_t turn_rows = std::max<std::uint64_t>(1, turn_bytes / row_bytes);
  const std::uint64_t rows_ahead = std::max<std::uint64_t>(1, ahead_bytes / row_bytes);
  const auto row_of = [](std::span<const std::int64_t> rows, std::uint64_t index) {
    return rows.empty() ? index : static_cast<std::uint64_t>(rows[index]);
  };
  std::atomic<std::uint64_t> next_row{0};
  std::atomic<std::uint64_t> num_copied{0};
  const auto copy_turns = [&] {
    while (true) {
      // Relaxed: turns are disjoint, and joining the threads publishes their results.
      const std::uint64_t begin = next_row.fetch_add(turn_rows, std::memory_order_relaxed);
      if (begin >= count) return;
      const std::uint64_t end = std::min(count, begin + turn_rows);
      for (std::uint64_t index = begin; index < end; ++index) {
        if (!from_rows.empty() && index + rows_ahead < count) {
          const std::byte* ahead = from.data + row_of(from_rows, index + rows_ahead) * from.stride;
          for (std::uint64_t byte = 0; byte < std::min(row_bytes, ahead_bytes); byte += line_bytes) {
            __builtin_prefetch(ahead + byte);
          }
        }
        std::memcpy(to + row_of(to_rows, index) * row_bytes, from.data + row_of(from_rows, index) * from.stride,
                    row_bytes);
      }
      num_copied.fetch_add(end - begin, std::memory_order_relaxed);
    }
  };

  const std::uint64_t useful_threads = 1 + count * row_bytes / min_thread_bytes;
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < std::min<std::uint64_t>(num_threads, useful_threads)) helpers.emplace_back(copy_turns);
  } catch (const std::system_error&) {  // no more threads available: the running ones do all turns
  }
  copy_turns();
  helpers.clear();  // joins
  // Relaxed: all threads that add are joined.
  return num_copied.load(std::memory_order_relaxed) * row_bytes;
}

}  // namespace diskhop
