// Items of a stream, in order, through a few slots of memory: read ahead, used by any thread, perhaps written out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "diskhop/io/engine.hpp"
#include "diskhop/hops/propagate.hpp"

namespace diskhop {

/// Of direct I/O on any disk.
inline constexpr std::uint64_t io_alignment = 4096;

[[nodiscard]] constexpr std::uint64_t whole_pages(std::uint64_t num_bytes) noexcept {
  return (num_bytes + io_alignment - 1) / io_alignment * io_alignment;
}

/// A read of bytes [offset, offset + num_bytes) that goes direct: they lie `skipped` bytes into the buffer, which has
/// room for aligned_read_bytes(num_bytes).
struct AlignedRead {
  Op op;
  std::uint64_t skipped;
};
[[nodiscard]] AlignedRead aligned_read(const File& file, std::uint64_t offset, std::uint64_t num_bytes,
                                       std::byte* buffer);
[[nodiscard]] constexpr std::uint64_t aligned_read_bytes(std::uint64_t num_bytes) noexcept {
  return whole_pages(num_bytes) + io_alignment;
}

/// One ticket, waited for before it goes.
class Transfer {
 public:
  Transfer() = default;
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  Transfer(Transfer&&) = delete;
  Transfer& operator=(Transfer&&) = delete;

  /// None may be in flight. No ops: nothing to wait for.
  void begin(Engine& engine, std::span<const Op> ops);
  [[nodiscard]] bool is_over() const;
  void wait();

 private:
  Engine* engine_ = nullptr;  // none: nothing in flight
  Ticket ticket_ = 0;
};

/// Items from first_item on, before end_item. Item n lies in slot n % num_slots, from when it is brought until it is
/// released. Threading: bring(), is_there() and finish() from one thread at a time, release() and stop() from any. The
/// memory behind the slots must outlive it.
class SlotRing {
 public:
  using MakeReads = std::function<std::vector<Op>(std::uint64_t item, std::uint64_t slot)>;

  SlotRing(Engine& engine, std::uint64_t first_item, std::uint64_t end_item, std::uint64_t num_slots,
           MakeReads make_reads);

  [[nodiscard]] std::uint64_t slot_of(std::uint64_t item) const noexcept { return item % slots_.size(); }
  /// Returns once an item is read, and sends the reads of those after it as far as there are free slots. Items ascend;
  /// all before item + 1 - num_slots are released, or about to be by other threads. False after stop().
  [[nodiscard]] bool bring(std::uint64_t item);
  /// Whether bring() would return at once. Sends reads as it does, but waits for nothing.
  [[nodiscard]] bool is_there(std::uint64_t item);
  /// Nobody uses an item's memory any more but these writes.
  void release(std::uint64_t item, std::span<const Op> writes);
  /// Nothing more will be released: whoever waits for that is to give up.
  void stop() noexcept;
  /// Waits for all writes.
  void finish();
  /// Once all threads have ended.
  [[nodiscard]] const StreamCounts& counts() const noexcept { return counts_; }

 private:
  struct Slot {
    Transfer reading;
    Transfer writing;
    bool is_released = true;  // guarded by mutex_
  };
  enum class Admission { free, busy, stopped };

  [[nodiscard]] Admission admit(Slot& slot, bool waits);
  /// Sends reads of items as far as there are free slots, waiting for those up to end_waiting. False after stop().
  [[nodiscard]] bool send(std::uint64_t item, std::uint64_t end_waiting);

  Engine& engine_;
  std::uint64_t end_item_;
  MakeReads make_reads_;
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_stopped_ = false;
  std::uint64_t next_item_;  // to be sent
  StreamCounts counts_;
  std::vector<Slot> slots_;
};

/// Calls work() in up to num_threads threads at once. What the first of them throws is thrown again once all have
/// ended; stop() is called then, so that the others end too.
void run_guarded(unsigned num_threads, const std::function<void()>& work, const std::function<void()>& stop);

/// Calls work(item, slot) for all items, in up to num_threads threads, each once it is read, and then writes what
/// make_writes(item, slot) says. Throws what any of them threw, after all threads have ended.
StreamCounts stream_items(const Streaming& streaming, std::uint64_t num_items, std::uint64_t num_slots,
                          const SlotRing::MakeReads& make_reads,
                          const std::function<void(std::uint64_t item, std::uint64_t slot)>& work,
                          const SlotRing::MakeReads& make_writes);

}  // namespace diskhop
