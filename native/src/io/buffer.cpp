#include "diskhop/io/buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace diskhop {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t small_page_bytes = std::size_t{4} << 10;
// Above this, sizes rounded up could overflow.
constexpr std::size_t max_buffer_bytes = std::numeric_limits<std::size_t>::max() / 2;

// Maps whole pages, starting at a huge page.
std::byte* map_aligned(std::size_t num_bytes, int protection) {
  // One huge page more than needed is mapped, so it contains an aligned range; the rest is unmapped.
  const std::size_t mapped_bytes = num_bytes + huge_page_bytes;
  void* mapping = ::mmap(nullptr, mapped_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapping);
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(begin) % huge_page_bytes;
  const std::size_t head_bytes = misalignment == 0 ? 0 : huge_page_bytes - misalignment;
  const std::size_t tail_bytes = mapped_bytes - head_bytes - num_bytes;
  std::byte* const aligned = begin + head_bytes;
  if (head_bytes > 0) ::munmap(begin, head_bytes);
  if (tail_bytes > 0) ::munmap(aligned + num_bytes, tail_bytes);
  return aligned;
}

}  // namespace

std::size_t Buffer::mapped_bytes(std::size_t num_bytes) noexcept {
  const std::size_t page_bytes = num_bytes <= huge_page_bytes / 2 ? small_page_bytes : huge_page_bytes;
  return (num_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

Buffer::Buffer(std::size_t num_bytes) {
  if (num_bytes == 0) return;
  if (num_bytes > max_buffer_bytes) throw std::bad_alloc();
  const std::size_t usable_bytes = Buffer::mapped_bytes(num_bytes);
  data_ = map_aligned(usable_bytes, PROT_READ | PROT_WRITE);
  num_bytes_ = usable_bytes;
  ::madvise(data_, num_bytes_, MADV_HUGEPAGE);  // advice: without huge pages it is slower, not wrong
}

void Buffer::grow(std::size_t num_bytes) {
  if (num_bytes > max_buffer_bytes) throw std::bad_alloc();
  const std::size_t usable_bytes = Buffer::mapped_bytes(num_bytes);
  if (usable_bytes <= num_bytes_) return;
  if (data_ == nullptr) {
    *this = Buffer(num_bytes);
    return;
  }
  std::byte* const place = map_aligned(usable_bytes, PROT_NONE);
  if (::mremap(data_, num_bytes_, usable_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
    // The place may be unmapped now and belong to another thread: it stays as it is, addresses without memory.
    throw std::bad_alloc();
  }
  data_ = place;
  num_bytes_ = usable_bytes;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, num_bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

BufferPool::Free::iterator BufferPool::find_fitting(std::size_t num_bytes) {
  // Little to spare: bytes beyond the request are missing in the caller's budget.
  const std::size_t most_bytes = std::max(num_bytes + num_bytes / 8, Buffer::mapped_bytes(num_bytes));
  auto best = free_.end();
  for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
    if (candidate->num_bytes() < num_bytes || candidate->num_bytes() > most_bytes) continue;
    if (best == free_.end() || candidate->num_bytes() < best->num_bytes()) best = candidate;
  }
  return best;
}

BufferPool::Free::iterator BufferPool::find_growing(std::size_t num_bytes) {
  auto best = free_.end();
  for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
    // Buffers below a huge page may consist of small pages, and would keep them.
    if (candidate->num_bytes() < std::max(num_bytes / 2, huge_page_bytes) || candidate->num_bytes() > num_bytes) {
      continue;
    }
    if (best == free_.end() || candidate->num_bytes() > best->num_bytes()) best = candidate;
  }
  return best;
}

BufferPool::Free::iterator BufferPool::find_dropped(std::size_t num_bytes) {
  auto best = free_.begin();
  for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
    const bool is_enough = candidate->num_bytes() >= num_bytes;
    const bool best_is_enough = best->num_bytes() >= num_bytes;
    const bool is_smaller = candidate->num_bytes() < best->num_bytes();
    if (is_enough ? is_smaller || !best_is_enough : candidate->num_bytes() > best->num_bytes()) best = candidate;
  }
  return best;
}

Buffer BufferPool::take(std::size_t num_bytes) {
  if (num_bytes == 0) return Buffer(0);
  if (num_bytes > max_buffer_bytes) throw std::bad_alloc();
  const std::size_t buffer_bytes = Buffer::mapped_bytes(num_bytes);
  Buffer buffer(0);
  {
    const std::lock_guard lock(mutex_);
    free_.reserve(free_.size() + num_used_ + 1);
    auto found = find_fitting(num_bytes);
    if (found == free_.end()) found = find_growing(num_bytes);
    ++num_used_;
    if (found != free_.end()) {
      buffer = std::move(*found);
      free_.erase(found);
      free_bytes_ -= buffer.num_bytes();
    }
    used_bytes_ += std::max(buffer.num_bytes(), buffer_bytes);
    if (buffer.num_bytes() >= buffer_bytes) return buffer;
  }
  make_room();  // before more is mapped
  try {
    buffer.grow(num_bytes);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --num_used_;
    used_bytes_ -= buffer_bytes;
    throw;
  }
  return buffer;
}

void BufferPool::give_back(Buffer buffer) noexcept {
  if (buffer.num_bytes() == 0) return;
  {
    const std::lock_guard lock(mutex_);
    // Sizes that are never in use at the same time are kept, too.
    if (keeps_peak_) max_bytes_ = std::max(max_bytes_, used_bytes_ + used_bytes_ / 8);
    --num_used_;
    used_bytes_ -= buffer.num_bytes();
    free_bytes_ += buffer.num_bytes();
    free_.push_back(std::move(buffer));  // take() reserved the capacity
  }
  make_room();
}

void BufferPool::make_room() noexcept {
  while (true) {
    Buffer dropped(0);  // unmapped after the lock is released, because it takes long
    const std::lock_guard lock(mutex_);
    if (free_.empty() || used_bytes_ + free_bytes_ <= max_bytes_) return;
    const auto found = keeps_peak_ ? find_dropped(used_bytes_ + free_bytes_ - max_bytes_) : free_.begin();
    dropped = std::move(*found);
    free_.erase(found);
    free_bytes_ -= dropped.num_bytes();
  }
}

std::size_t BufferPool::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

}  // namespace diskhop
