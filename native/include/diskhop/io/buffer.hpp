// Memory for I/O and mini-batches: large, aligned, on huge pages, and reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace diskhop {

/// Anonymous memory, aligned to 2 MiB and advised for huge pages. Disks take at most 254 segments per request, so reads
/// into 4-KiB pages reach only a third of the bandwidth.
class Buffer {
 public:
  explicit Buffer(std::size_t num_bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// Bytes that a buffer of this size maps: whole 2-MiB pages, up to 1 MiB whole 4-KiB pages.
  [[nodiscard]] static std::size_t mapped_bytes(std::size_t num_bytes) noexcept;

  /// Maps more memory: contents move without new page faults, and data() changes. num_bytes: at least num_bytes().
  /// Throws std::bad_alloc and changes nothing then.
  void grow(std::size_t num_bytes);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Usable bytes: mapped_bytes() of the request. With 0 bytes data() is null.
  [[nodiscard]] std::size_t num_bytes() const noexcept { return num_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

/// Hands out buffers and takes them back: fresh memory costs a page fault per page and the kernel's zeroing. Callers
/// bound the buffers in use. Free ones stay mapped, the last returned first, only while the pool has at most max_bytes
/// in total; if it keeps its peak, at most an eighth more than was in use at once, where that is more. Threading: any
/// number of callers.
class BufferPool {
 public:
  explicit BufferPool(std::size_t max_bytes, bool keeps_peak = false)
      : max_bytes_(max_bytes), keeps_peak_(keeps_peak) {}
  /// Takes a free buffer of this size, with up to an eighth to spare; else grows one of at least half the size (batches
  /// differ by a few pages); else maps a new one. Throws std::bad_alloc.
  [[nodiscard]] Buffer take(std::size_t num_bytes);
  /// Returns a buffer from take() to the pool.
  void give_back(Buffer buffer) noexcept;
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  using Free = std::vector<Buffer>;
  [[nodiscard]] Free::iterator find_fitting(std::size_t num_bytes);
  [[nodiscard]] Free::iterator find_growing(std::size_t num_bytes);
  /// Returns the free buffer whose loss costs least where every mini-batch asks for the same sizes: the smallest of at
  /// least num_bytes, else the largest one; of several the oldest. The oldest of all is needed first.
  [[nodiscard]] Free::iterator find_dropped(std::size_t num_bytes);
  /// Unmaps free buffers until the rest fits: the oldest, or find_dropped() in a pool that keeps its peak.
  void make_room() noexcept;

  mutable std::mutex mutex_;
  Free free_;  // in the order returned; capacity includes buffers in use
  std::size_t free_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::size_t num_used_ = 0;
  std::size_t max_bytes_;
  bool keeps_peak_;
};

/// A pool's buffer for the duration of a scope.
class PooledBuffer {
 public:
  PooledBuffer(BufferPool& pool, std::size_t num_bytes) : pool_(pool), buffer_(pool.take(num_bytes)) {}
  ~PooledBuffer() { pool_.give_back(std::move(buffer_)); }
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;
  PooledBuffer(PooledBuffer&&) = delete;
  PooledBuffer& operator=(PooledBuffer&&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return buffer_.data(); }

 private:
  BufferPool& pool_;
  Buffer buffer_;
};

}  // namespace diskhop
