#include "diskhop/rows/append_rows.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace diskhop {
namespace {

constexpr std::uint64_t line_bytes = 64;
// Distance of prefetching, in bytes: wanted rows are some lines apart.
constexpr std::uint64_t ahead_bytes = 4 << 10;

void check_streams(const RowArray& from, std::uint64_t row_bytes, std::uint64_t first_id, const RowStreams& streams,
                   std::uint64_t out_bytes) {
  const std::size_t num_streams = streams.begins.size();
  if (streams.counts.size() != num_streams || streams.places.size() != num_streams ||
      streams.rest_bytes.size() != num_streams || streams.rests.size() != num_streams * streams.block_bytes) {
    throw std::invalid_argument("there must be a begin, a count, a place and a rest for each stream");
  }
  for (std::size_t stream = 0; stream < num_streams; ++stream) {
    // Negative values are very large ones.
    const auto begin = static_cast<std::uint64_t>(streams.begins[stream]);
    const auto count = static_cast<std::uint64_t>(streams.counts[stream]);
    const auto place = static_cast<std::uint64_t>(streams.places[stream]);
    const auto rest = static_cast<std::uint64_t>(streams.rest_bytes[stream]);
    if (count == 0) continue;
    if (begin > streams.ids.size() || count > streams.ids.size() - begin || rest >= streams.block_bytes ||
        place > out_bytes || rest > out_bytes - place ||
        (row_bytes > 0 && count > (out_bytes - place - rest) / row_bytes)) {
      throw std::out_of_range("stream " + std::to_string(stream) + " has ids or bytes outside its arrays");
    }
    for (const std::uint32_t id : streams.ids.subspan(begin, count)) {
      if (id < first_id || id - first_id >= from.num_rows) {
        throw std::out_of_range("row " + std::to_string(id) + " is not among the " + std::to_string(from.num_rows) +
                                " from " + std::to_string(first_id) + " on");
      }
    }
  }
}

}  // namespace

void append_rows(const RowArray& from, std::uint64_t row_bytes, std::uint64_t first_id, const RowStreams& streams,
                 std::span<std::byte> out, unsigned num_threads) {
  check_streams(from, row_bytes, first_id, streams, out.size());
  const std::uint64_t rows_ahead = std::max<std::uint64_t>(1, ahead_bytes / std::max<std::uint64_t>(1, row_bytes));
  const auto append = [&](std::size_t stream) {
    const auto count = static_cast<std::size_t>(streams.counts[stream]);
    if (count == 0) return;
    const auto ids = streams.ids.subspan(static_cast<std::size_t>(streams.begins[stream]), count);
    const auto row = [&](std::size_t index) { return from.data + (ids[index] - first_id) * from.stride; };
    std::byte* const rest = streams.rests.data() + stream * streams.block_bytes;
    const auto rest_bytes = static_cast<std::uint64_t>(streams.rest_bytes[stream]);
    std::byte* const begin = out.data() + streams.places[stream];
    std::memcpy(begin, rest, rest_bytes);
    for (std::size_t index = 0; index < count; ++index) {
      if (index + rows_ahead < count) {
        const std::byte* const ahead = row(index + rows_ahead);
        for (std::uint64_t byte = 0; byte < std::min(row_bytes, ahead_bytes); byte += line_bytes) {
          __builtin_prefetch(ahead + byte);
        }
      }
      std::memcpy(begin + rest_bytes + index * row_bytes, row(index), row_bytes);
    }
    const std::uint64_t end = rest_bytes + count * row_bytes, left = end % streams.block_bytes;
    std::memcpy(rest, begin + end - left, left);
    streams.rest_bytes[stream] = static_cast<std::int64_t>(left);
  };

  const std::size_t num_streams = streams.begins.size();
  std::atomic<std::size_t> next_stream{0};
  const auto append_turns = [&] {
    while (true) {
      // Relaxed: streams are disjoint, and joining the threads publishes their results.
      const std::size_t stream = next_stream.fetch_add(1, std::memory_order_relaxed);
      if (stream >= num_streams) return;
      append(stream);
    }
  };
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < std::min<std::size_t>(num_threads, num_streams)) helpers.emplace_back(append_turns);
  } catch (const std::system_error&) {  // no more threads available: the running ones do all turns
  }
  append_turns();
}

}  // namespace diskhop
