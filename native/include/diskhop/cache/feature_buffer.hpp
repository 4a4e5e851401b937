// Feature rows of several mini-batches in one buffer, each row stored once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "diskhop/rows/shared_scan.hpp"

namespace diskhop {

/// Row counts of one batch. hits: resident when claimed. shared: being read by another batch.
struct BatchCounts {
  ScanCounts scan;
  std::uint64_t hits = 0;
  std::uint64_t shared = 0;
};

/// Row counts since the buffer was made: read from disk, and evicted or failed. `resident`: rows resident now.
struct BufferTotals {
  std::uint64_t read = 0;
  std::uint64_t dropped = 0;
  std::uint64_t resident = 0;
};

/// Buffer of GNNDrive (section 4.2): slots of one row each, a table of every row's slot, and for each slot its row, the
/// number of batches that use it, and its reader. A batch claims all of its rows in one step. Rows that are resident,
/// or being read by another batch, are shared. The others take slots: free ones first, then the least recently used
/// (the standby list); a row is evicted only when its slot is taken. So no row is read twice while it is resident or in
/// flight, and no batch occupies some slots while it waits for more. Batches queue until all slots that they need are
/// free; every batch that fits the buffer is served. A row is valid once its read is complete: a batch waits for the
/// rows that it shares with another one, not for the others of that batch.
///
/// Difference from the paper: its Algorithm 1 looks a row up and counts it in two steps, between which another
/// extractor may claim it too, and it takes slots one at a time.
///
/// Memory: 16 bytes per slot and 4 per row of the table; 8 bytes per row of a batch while the batch lives, and 16 more
/// while it claims its rows. Threading: any number of callers; a batch is released once, by one caller.
class FeatureBuffer : private Arrivals {
 public:
  class Batch;

  /// Slot i is at rows + i * the scan's row_bytes; `rows` and `scan` must outlive the buffer. most_standby: unused rows
  /// that stay resident, at most. Throws std::invalid_argument for 2^32 - 1 slots or rows, or more.
  FeatureBuffer(SharedScan& scan, std::byte* rows, std::uint64_t num_slots, std::uint64_t most_standby);

  /// Queues a batch of distinct rows. Once there are slots for them they are claimed, and reads of the missing ones
  /// begin. Throws std::out_of_range for an id outside the table, std::length_error for more ids than slots.
  [[nodiscard]] std::shared_ptr<Batch> submit(std::span<const std::int64_t> ids);
  /// Returns once all rows of a batch are in their slots. Throws IoError if one of its reads failed, or if another
  /// batch failed before a row that both share was read; rows of a failed read are valid for no batch.
  BatchCounts wait(const std::shared_ptr<Batch>& batch);
  /// Removes a batch from the queue: wait() for it fails. Does nothing once its rows are claimed.
  void cancel(const std::shared_ptr<Batch>& batch);
  /// Releases a batch's rows. Reads shared with other batches are waited for, the rest are cancelled.
  void release(const std::shared_ptr<Batch>& batch);
  [[nodiscard]] BufferTotals totals() const;
  [[nodiscard]] std::uint64_t num_slots() const noexcept { return slots_.size() - 1; }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint16_t no_reader = std::numeric_limits<std::uint16_t>::max();
  struct Slot {
    std::uint32_t row = none;
    std::uint32_t previous = none;  // on the standby list, a ring through its head, which is the slot past the last
    std::uint32_t next = none;      // on the standby list, or on the list of free slots
    std::uint16_t num_users = 0;
    // Index in readers_ until the row is valid. The scan's thread clears it, without the mutex, when the row is there:
    // it stores with release, and others load with acquire, so that they see the row.
    std::atomic<std::uint16_t> reader = no_reader;
  };
  struct Missing {
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> to_slots;
  };

  void arrived(std::span<const std::uint32_t> to_rows) noexcept override;
  void admit() noexcept;
  void read(const std::shared_ptr<Batch>& batch, const Missing& missing) noexcept;
  [[nodiscard]] bool has_room_for(const Batch& batch) const;
  [[nodiscard]] Missing claim(const std::shared_ptr<Batch>& batch);
  void complete(const std::shared_ptr<Batch>& batch);
  void wait_for_row(const Slot& slot);
  void finish(Batch& batch, std::exception_ptr error);
  [[nodiscard]] std::uint32_t take_slot();
  void forget_row(std::uint32_t index);
  void give_back(std::uint32_t index);
  void put_on_standby(std::uint32_t index);
  void take_from_standby(std::uint32_t index);
  [[nodiscard]] Slot& head() { return slots_.back(); }

  SharedScan& scan_;
  std::byte* rows_;
  std::uint64_t most_standby_;
  mutable std::mutex mutex_;            // guards all members below
  std::condition_variable changed_;     // a batch changed its state
  std::vector<std::uint32_t> slot_of_;  // per row of the table
  std::vector<Slot> slots_;             // including the head of the standby list
  std::uint32_t first_free_ = none;
  std::uint64_t num_free_;
  std::uint64_t num_standby_ = 0;
  std::vector<std::shared_ptr<Batch>> readers_;
  std::deque<std::shared_ptr<Batch>> queue_;
  bool is_admitting_ = false;  // a thread is admitting batches
  BufferTotals totals_;
};

/// One batch: rows in their slots, or in flight. Lifetime: until release().
class FeatureBuffer::Batch {
 public:
  /// Slot of each row, in the order of the ids. Valid from wait() to release().
  [[nodiscard]] const std::vector<std::int64_t>& slots() const noexcept { return slots_; }

 private:
  friend class FeatureBuffer;

  std::vector<std::int64_t> slots_;  // ids, while queued
  bool is_claimed_ = false;
  bool is_finished_ = false;                    // its own reads have finished
  std::uint16_t reader_ = no_reader;            // set while it reads
  std::vector<std::shared_ptr<Batch>> others_;  // batches that were reading some of its rows
  std::shared_ptr<SharedScan::Request> request_;
  std::exception_ptr error_;
  BatchCounts counts_;
};

}  // namespace diskhop
