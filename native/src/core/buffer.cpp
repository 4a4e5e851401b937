#include "diskhop/buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace diskhop {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

}  // namespace

Buffer::Buffer(std::size_t num_bytes) {
  if (num_bytes == 0) return;
  if (num_bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  const std::size_t usable_bytes = (num_bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  // One page more than needed is mapped, so that an aligned range lies in it; what sticks out is given back.
  const std::size_t mapped_bytes = usable_bytes + huge_page_bytes;
  void* mapping = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapping);
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(begin) % huge_page_bytes;
  const std::size_t head_bytes = misalignment == 0 ? 0 : huge_page_bytes - misalignment;
  const std::size_t tail_bytes = mapped_bytes - head_bytes - usable_bytes;
  data_ = begin + head_bytes;
  num_bytes_ = usable_bytes;
  if (head_bytes > 0) ::munmap(begin, head_bytes);
  if (tail_bytes > 0) ::munmap(data_ + num_bytes_, tail_bytes);
  ::madvise(data_, num_bytes_, MADV_HUGEPAGE);  // only advice: without huge pages it is slower, not wrong
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

Buffer BufferPool::take(std::size_t num_bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
      // Pages are the unit: of two small requests, the larger rounding must not count as waste.
      const std::size_t most_bytes = std::max(2 * num_bytes, huge_page_bytes);
      if (candidate->num_bytes() < num_bytes || candidate->num_bytes() > most_bytes) continue;
      if (best == free_.end() || candidate->num_bytes() < best->num_bytes()) best = candidate;
    }
    if (num_bytes > 0 && best != free_.end()) {
      Buffer buffer = std::move(*best);
      free_.erase(best);
      free_bytes_ -= buffer.num_bytes();
      return buffer;
    }
  }
  return Buffer(num_bytes);
}

void BufferPool::give_back(Buffer buffer) {
  std::vector<Buffer> dropped;  // unmapped after the lock is released: it takes a while
  const std::lock_guard lock(mutex_);
  if (buffer.num_bytes() == 0 || buffer.num_bytes() > max_free_bytes_) {
    dropped.push_back(std::move(buffer));
    return;
  }
  while (free_bytes_ + buffer.num_bytes() > max_free_bytes_) {
    free_bytes_ -= free_.front().num_bytes();
    dropped.push_back(std::move(free_.front()));
    free_.erase(free_.begin());
  }
  free_bytes_ += buffer.num_bytes();
  free_.push_back(std::move(buffer));
}

std::size_t BufferPool::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

}  // namespace diskhop
