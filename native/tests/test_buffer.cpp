// Claims about buffers: aligned, usable, returned once, reused, and never more unused than allowed.
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/buffer.hpp"

using diskhop::Buffer;
using diskhop::BufferPool;
using diskhop::testing::check;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

void buffers_are_aligned_and_whole_pages() {
  for (const std::size_t num_bytes : {std::size_t{1}, page - 1, page, page + 1, 5 * page}) {
    const Buffer buffer(num_bytes);
    check(reinterpret_cast<std::uintptr_t>(buffer.data()) % page == 0, "a buffer starts at a huge page");
    check(buffer.num_bytes() >= num_bytes && buffer.num_bytes() < num_bytes + page, "it is rounded up to a page");
    std::memset(buffer.data(), 1, buffer.num_bytes());
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

void a_pool_gives_the_same_memory_again() {
  BufferPool pool(8 * page);
  Buffer buffer = pool.take(3 * page);
  std::byte* const place = buffer.data();
  pool.give_back(std::move(buffer));
  check(pool.free_bytes() == 3 * page, "what was given back is free");
  check(pool.take(page).data() != place, "a buffer of more than twice the bytes is not handed out");
  check(pool.take(2 * page).data() == place, "a buffer that fits is used again");
  check(pool.free_bytes() == 0, "what was taken is not free");
}

void a_pool_takes_the_smallest_that_fits() {
  BufferPool pool(64 * page);
  Buffer large = pool.take(4 * page);
  Buffer small = pool.take(3 * page);
  std::byte* const place = small.data();
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  check(pool.take(2 * page + 1).data() == place, "the smallest that fits is taken");
}

void a_pool_keeps_no_more_than_allowed() {
  BufferPool pool(3 * page);
  Buffer oldest = pool.take(2 * page);
  Buffer newer = pool.take(2 * page);
  Buffer too_large = pool.take(4 * page);
  std::byte* const place = newer.data();
  pool.give_back(std::move(oldest));
  pool.give_back(std::move(newer));
  pool.give_back(std::move(too_large));
  check(pool.free_bytes() == 2 * page, "the oldest makes room, what can never fit is dropped");
  check(pool.take(2 * page).data() == place, "the one given back last was kept");
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
  a_pool_gives_the_same_memory_again();
  a_pool_takes_the_smallest_that_fits();
  a_pool_keeps_no_more_than_allowed();
  threads_never_share_a_buffer();
}
