// Claims about buffers: aligned, usable, returned once, reused, and never more unused than allowed.
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/io/buffer.hpp"

using diskhop::Buffer;
using diskhop::BufferPool;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

void buffers_are_aligned_and_whole_pages() {
  for (const std::size_t num_bytes : {std::size_t{1}, page - 1, page, page + 1, 5 * page}) {
    const Buffer buffer(num_bytes);
    check(reinterpret_cast<std::uintptr_t>(buffer.data()) % page == 0, "a buffer starts at a huge page");
    check(buffer.num_bytes() >= num_bytes && buffer.num_bytes() < num_bytes + page, "it is rounded up to a page");
    std::memset(buffer.data(), 1, buffer.num_bytes());
  }
  for (const std::size_t num_bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{4097}, page / 2}) {
    check(Buffer(num_bytes).num_bytes() < num_bytes + 4096, "a small one is rounded up to a small page");
  }
  const Buffer nothing(0);
  check(nothing.data() == nullptr && nothing.num_bytes() == 0, "no bytes take no memory");
}

void moved_buffers_have_one_owner() {
  Buffer first(page);
  std::byte* const place = first.data();
  Buffer second = std::move(first);
  check(second.data() == place, "moving keeps the memory");
  Buffer third(page);
  third = std::move(second);
  check(third.data() == place, "assigning keeps the memory");
}

void a_grown_buffer_keeps_its_contents() {
  Buffer buffer(3 * page);
  std::memset(buffer.data(), 7, buffer.num_bytes());
  buffer.grow(5 * page + 1);
  check(reinterpret_cast<std::uintptr_t>(buffer.data()) % page == 0, "it starts at a huge page");
  check(buffer.num_bytes() == 6 * page, "it is rounded up to a page");
  for (std::size_t i = 0; i < 6 * page; i += 512) {
    check(buffer.data()[i] == static_cast<std::byte>(i < 3 * page ? 7 : 0),
          "what was there is there, the rest is zero");
  }
  std::byte* const place = buffer.data();
  buffer.grow(page);
  check(buffer.data() == place && buffer.num_bytes() == 6 * page, "it does not shrink");
  check_throws<std::bad_alloc>([&] { buffer.grow(std::numeric_limits<std::size_t>::max() / 2); }, "no such memory");
  check(buffer.data() == place && buffer.data()[0] == std::byte{7}, "what cannot grow stays as it is");
  Buffer nothing(0);
  nothing.grow(1);
  check(nothing.data() != nullptr, "what has no memory gets some");
}

void a_pool_grows_what_nearly_fits() {
  BufferPool pool(24 * page);
  Buffer small = pool.take(3 * page);
  Buffer large = pool.take(9 * page);
  large.data()[0] = std::byte{5};
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  Buffer grown = pool.take(11 * page);
  check(grown.num_bytes() == 11 * page && grown.data()[0] == std::byte{5}, "the largest of those that are too small");
  check(pool.free_bytes() == 3 * page, "the other stays free");
  check(pool.take(7 * page).data()[0] == std::byte{0}, "not one of less than half the size");
}

void a_pool_gives_the_same_memory_again() {
  BufferPool pool(8 * page);
  Buffer buffer = pool.take(3 * page);
  std::byte* const place = buffer.data();
  pool.give_back(std::move(buffer));
  check(pool.free_bytes() == 3 * page, "what was given back is free");
  check(pool.take(3 * page - 1).data() == place, "a buffer that fits is used again");
  check(pool.free_bytes() == 0, "what was taken is not free");
}

void a_pool_takes_the_smallest_that_fits() {
  BufferPool pool(128 * page);
  Buffer large = pool.take(18 * page);
  Buffer small = pool.take(17 * page);
  std::byte* const place = small.data();
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  check(pool.take(16 * page + 1).data() == place, "the smallest that fits is taken");
}

void buffers_exceed_requests_by_little() {
  BufferPool pool(128 * page);
  for (const std::size_t free_pages : {2, 10, 20}) pool.give_back(pool.take(free_pages * page));
  for (const std::size_t num_bytes : {std::size_t{1}, page, page + 1, 8 * page, 9 * page, 11 * page, 18 * page}) {
    Buffer buffer = pool.take(num_bytes);
    const std::size_t spare_bytes = buffer.num_bytes() - num_bytes;
    check(spare_bytes < page || spare_bytes <= num_bytes / 8, "a page's rest or an eighth is spare, and no more");
    pool.give_back(std::move(buffer));
  }
}

/// Bytes in use and free bytes in total, while sizes grow and shrink and threads alternate.
void a_pool_stays_within_its_bound() {
  constexpr std::size_t most_pages = 64;
  BufferPool pool(most_pages * page);
  const std::vector<std::vector<std::size_t>> rounds = {
      {10, 10, 10, 10}, {12, 12, 12}, {14, 14, 14, 14}, {30, 30}, {7, 7, 7, 7, 7}, {1, 2, 3, 4}, {64}};
  for (const auto& sizes : rounds) {
    std::vector<Buffer> used;
    std::size_t used_bytes = 0;
    for (const std::size_t num_pages : sizes) {
      used.push_back(pool.take(num_pages * page));
      used_bytes += used.back().num_bytes();
      check(used_bytes + pool.free_bytes() <= most_pages * page, "free memory makes room for what is used");
    }
    for (Buffer& buffer : used) {
      pool.give_back(std::move(buffer));
      check(pool.free_bytes() <= most_pages * page, "free memory alone stays within the total");
    }
  }
}

void impossible_sizes_change_nothing() {
  BufferPool pool(4 * page);
  pool.give_back(pool.take(page));
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t num_bytes : {most, most - page, most / 2 + 1, most / 2}) {
    check_throws<std::bad_alloc>([&] { static_cast<void>(pool.take(num_bytes)); }, "no such memory");
  }
  const Buffer used = pool.take(3 * page);
  pool.give_back(pool.take(page));
  check(pool.free_bytes() == page, "what was refused is not counted as used");
  static_assert(noexcept(pool.give_back(std::declval<Buffer>())), "destructors give back");
}

void a_pool_keeps_no_more_than_allowed() {
  BufferPool pool(4 * page);
  Buffer oldest = pool.take(2 * page);
  Buffer newer = pool.take(2 * page);
  Buffer too_large = pool.take(8 * page);
  std::byte* const place = newer.data();
  pool.give_back(std::move(oldest));
  check(pool.free_bytes() == 0, "nothing is kept while more than allowed is in use");
  pool.give_back(std::move(too_large));
  check(pool.free_bytes() == 0, "what can never fit is dropped");
  pool.give_back(std::move(newer));
  check(pool.free_bytes() == 2 * page, "what fits is kept");
  check(pool.take(2 * page).data() == place, "and used again");
}

void a_pool_that_keeps_its_peak_keeps_what_was_in_use_at_once() {
  BufferPool pool(page, true);
  for (int round = 0; round < 2; ++round) {
    std::vector<Buffer> used;
    for (int number = 0; number < 3; ++number) used.push_back(pool.take(2 * page));
    check(pool.free_bytes() == 0, "no more than before was taken");
    for (Buffer& buffer : used) pool.give_back(std::move(buffer));
    check(pool.free_bytes() == 6 * page, "all of it stays for the next round");
  }
  const Buffer wide = pool.take(5 * page);
  check(pool.free_bytes() == 0, "free buffers make room within an eighth more than was in use at once");
}

void free_buffers_make_room_for_new_ones() {
  BufferPool pool(4 * page);
  Buffer oldest = pool.take(page);
  Buffer newer = pool.take(page);
  pool.give_back(std::move(oldest));
  pool.give_back(std::move(newer));
  const Buffer wide = pool.take(3 * page);
  check(pool.free_bytes() == page, "the oldest free buffer goes when a new one would not fit otherwise");
}

void threads_never_share_a_buffer() {
  BufferPool pool(8 * page);
  const auto work = [&pool](int mark) {
    for (int round = 0; round < 50; ++round) {
      Buffer buffer = pool.take(page);
      std::memset(buffer.data(), mark, 4096);
      for (std::size_t i = 0; i < 4096; ++i) check(buffer.data()[i] == static_cast<std::byte>(mark), "bytes stay mine");
      pool.give_back(std::move(buffer));
    }
  };
  std::vector<std::thread> threads;
  for (int mark = 1; mark <= 4; ++mark) threads.emplace_back(work, mark);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  buffers_are_aligned_and_whole_pages();
  moved_buffers_have_one_owner();
  a_grown_buffer_keeps_its_contents();
  a_pool_grows_what_nearly_fits();
  a_pool_gives_the_same_memory_again();
  a_pool_takes_the_smallest_that_fits();
  buffers_exceed_requests_by_little();
  a_pool_stays_within_its_bound();
  impossible_sizes_change_nothing();
  a_pool_keeps_no_more_than_allowed();
  a_pool_that_keeps_its_peak_keeps_what_was_in_use_at_once();
  free_buffers_make_room_for_new_ones();
  threads_never_share_a_buffer();
}
