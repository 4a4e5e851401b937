// Memory for I/O and mini-batches: large, aligned, on huge pages, and used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace diskhop {

/// Maps anonymous memory aligned to 2 MiB and advised for huge pages: the device takes at most 254 segments a request,
/// so that reads into 4-KiB pages reach a third of the bandwidth.
class Buffer {
 public:
  explicit Buffer(std::size_t num_bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// Maps more: what there is moves there with its contents, none of its pages is mapped anew, and data() changes.
  /// num_bytes: at least num_bytes(). Throws std::bad_alloc and leaves everything as it is.
  void grow(std::size_t num_bytes);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Usable bytes: the request rounded up to whole 2-MiB pages, up to 1 MiB to whole 4-KiB pages (0 bytes: no memory,
  /// data() is null).
  [[nodiscard]] std::size_t num_bytes() const noexcept { return num_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

/// Hands out buffers and takes them back: fresh memory costs a page fault for every page and the kernel's zeros.
/// Buffers in use are the callers' to bound; free ones are kept, the last given back first, only while all together
/// stay within `max_bytes`. Threading: any number of callers.
class BufferPool {
 public:
  explicit BufferPool(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  /// A free buffer of this size, with up to an eighth to spare; else one of at least half of it, grown: batches differ
  /// by a few pages; else a new one. Throws std::bad_alloc.
  [[nodiscard]] Buffer take(std::size_t num_bytes);
  /// Takes back what take() handed out.
  void give_back(Buffer buffer) noexcept;
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  using Free = std::vector<Buffer>;
  [[nodiscard]] Free::iterator find_fitting(std::size_t num_bytes);
  [[nodiscard]] Free::iterator find_growing(std::size_t num_bytes);
  /// Unmaps free buffers, the oldest first, until what is left fits.
  void make_room() noexcept;

  mutable std::mutex mutex_;
  Free free_;  // in the order given back; has room for those in use too
  std::size_t free_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::size_t num_used_ = 0;
  std::size_t max_bytes_;
};

/// A pool's buffer for the length of a scope.
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
