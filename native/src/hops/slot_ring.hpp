// Items of a stream, in order, through a few slots of memory: prefetched, used by any thread, optionally written out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "diskhop/hops/propagate.hpp"
#include "diskhop/io/engine.hpp"

namespace diskhop {

/// Alignment of direct I/O on any disk.
inline constexpr std::uint64_t io_alignment = 4096;

[[nodiscard]] constexpr std::uint64_t whole_pages(std::uint64_t num_bytes) noexcept {
  return (num_bytes + io_alignment - 1) / io_alignment * io_alignment;
}

/// A direct read of bytes [offset, offset + num_bytes): they begin `skipped` bytes into the buffer, which has space for
/// aligned_read_bytes(num_bytes).
struct AlignedRead {
  Op op;
  std::uint64_t skipped;
};
[[nodiscard]] AlignedRead aligned_read(const File& file, std::uint64_t offset, std::uint64_t num_bytes,
                                       std::byte* buffer);
[[nodiscard]] constexpr std::uint64_t aligned_read_bytes(std::uint64_t num_bytes) noexcept {
  return whole_pages(num_bytes) + io_alignment;
}

/// One ticket; the destructor waits for it.
class Transfer {
 public:
  Transfer() = default;
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  Transfer(Transfer&&) = delete;
  Transfer& operator=(Transfer&&) = delete;

  /// Submits ops; none may be in flight. Without ops there is nothing to wait for.
  void begin(Engine& engine, std::span<const Op> ops);
  [[nodiscard]] bool is_over() const;
  void wait();

 private:
  Engine* engine_ = nullptr;  // null: nothing in flight
  Ticket ticket_ = 0;
};

/// Items from first_item on, before end_item. Item n is in slot n % num_slots, from fetch() until release(). Threading:
/// fetch(), is_fetched() and finish() from one thread at a time, release() and stop() from any. Lifetime: the slots'
/// memory must outlive it.
class SlotRing {
 public:
  using MakeReads = std::function<std::vector<Op>(std::uint64_t item, std::uint64_t slot)>;

  SlotRing(Engine& engine, std::uint64_t first_item, std::uint64_t end_item, std::uint64_t num_slots,
           MakeReads make_reads);

  [[nodiscard]] std::uint64_t slot_of(std::uint64_t item) const noexcept { return item % slots_.size(); }
  /// Returns once an item is read, and submits the reads of later items while there are free slots. Items ascend; all
  /// before item + 1 - num_slots are released, or will be by other threads. Returns false after stop().
  [[nodiscard]] bool fetch(std::uint64_t item);
  /// Whether fetch() would return at once. Submits reads as it does, without waiting.
  [[nodiscard]] bool is_fetched(std::uint64_t item);
  /// Releases an item's memory: from now on only these writes use it.
  void release(std::uint64_t item, std::span<const Op> writes);
  /// Ends waiting for releases: no more will follow.
  void stop() noexcept;
  /// Waits for all writes.
  void finish();
  /// Bytes and waiting times, after all threads have ended.
  [[nodiscard]] const StreamCounts& counts() const noexcept { return counts_; }

 private:
  struct Slot {
    Transfer reading;
    Transfer writing;
    bool is_released = true;  // guarded by mutex_
  };
  enum class Admission { free, busy, stopped };

  [[nodiscard]] Admission admit(Slot& slot, bool waits);
  /// Submits reads of items while there are free slots, and waits for slots of items up to end_waiting. Returns false
  /// after stop().
  [[nodiscard]] bool send(std::uint64_t item, std::uint64_t end_waiting);

  Engine& engine_;
  std::uint64_t end_item_;
  MakeReads make_reads_;
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_stopped_ = false;
  std::uint64_t next_item_;  // to be submitted
  StreamCounts counts_;
  std::vector<Slot> slots_;
};

/// Calls work() in up to num_threads threads at once. The first exception is rethrown after all have ended; stop() is
/// called then, so that the others end too.
void run_guarded(unsigned num_threads, const std::function<void()>& work, const std::function<void()>& stop);

/// Calls work(item, slot) for each item once it is read, in up to num_threads threads, and then submits the writes of
/// make_writes(item, slot). Throws any thread's exception, after all threads have ended.
StreamCounts stream_items(const Streaming& streaming, std::uint64_t num_items, std::uint64_t num_slots,
                          const SlotRing::MakeReads& make_reads,
                          const std::function<void(std::uint64_t item, std::uint64_t slot)>& work,
                          const SlotRing::MakeReads& make_writes);

}  // namespace diskhop
