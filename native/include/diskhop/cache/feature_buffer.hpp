// Feature rows of several mini-batches in one buffer, each of them once.
#pragma once

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

/// What a batch took. hits: rows that were there; shared: that another batch was reading already.
struct BatchCounts {
  ScanCounts scan;
  std::uint64_t hits = 0;
  std::uint64_t shared = 0;
};

/// Rows since the buffer was made: read, and let go again, or never there for an error. `held`: counted now, in slots.
struct BufferTotals {
  std::uint64_t read = 0;
  std::uint64_t dropped = 0;
  std::uint64_t held = 0;
};

/// The feature buffer of GNNDrive (section 4.2): slots of one row each, a table of every row's slot, and for each slot
/// its row, how many batches use it, and who is reading it. A batch claims all of its rows in one step: those that are
/// there, or that another batch is reading, it shares; for the others it takes slots, free ones first, then those that
/// nobody has used for longest (the standby list), whose rows are forgotten only then. So no row is read while it is
/// there or on its way, and no batch has some of its slots and waits for more: batches stand in line until all they
/// need is free, and however large, one that fits the buffer has its turn.
///
/// (The paper's Algorithm 1 looks a row up and counts it in two steps, between which another extractor may claim it
/// too, and takes slots one at a time.)
///
/// Takes 16 bytes a slot and 4 a row of the table while it lives; of a batch 8 bytes a row while that lives, and 16
/// more while it claims them. Threading: any number of callers; a batch is released by one, once.
class FeatureBuffer {
 public:
  class Batch;

  /// Slot i is at rows + i * the scan's row_bytes; `rows` and `scan` must outlive this. most_standby: rows that nobody
  /// uses and that are kept all the same. Throws std::invalid_argument for 2^32 - 1 slots or rows, or more.
  FeatureBuffer(SharedScan& scan, std::byte* rows, std::uint64_t num_slots, std::uint64_t most_standby);
  FeatureBuffer(const FeatureBuffer&) = delete;
  FeatureBuffer& operator=(const FeatureBuffer&) = delete;

  /// Puts a batch of rows, distinct ones, in the line: once there are slots for them they are claimed, and what is
  /// missing begins to be read. Throws std::out_of_range for an id outside the table, std::length_error for more ids
  /// than there are slots.
  [[nodiscard]] std::shared_ptr<Batch> submit(std::span<const std::int64_t> ids);
  /// Returns once all rows of a batch are in their slots. Throws IoError where a read failed, this batch's or that of
  /// a batch that was reading some of its rows: what failed is valid for nobody.
  BatchCounts wait(const std::shared_ptr<Batch>& batch);
  /// Takes a batch out of the line: whoever waits for it has an error. Does nothing once its rows are claimed.
  void cancel(const std::shared_ptr<Batch>& batch);
  /// Lets a batch's rows go. What it still reads for others too is waited for, the rest given up.
  void release(const std::shared_ptr<Batch>& batch);
  [[nodiscard]] BufferTotals totals() const;
  [[nodiscard]] std::uint64_t num_slots() const noexcept { return slots_.size() - 1; }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint16_t no_reader = std::numeric_limits<std::uint16_t>::max();
  struct Slot {
    std::uint32_t row = none;
    std::uint32_t previous = none;  // on the standby list, which is a ring through its head, the slot past the last
    std::uint32_t next = none;      // there, or on the list of free slots
    std::uint16_t num_users = 0;
    std::uint16_t reader = no_reader;  // in readers_; its row is not valid before
  };
  struct Missing {
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> to_slots;
  };

  void admit() noexcept;
  void read(const std::shared_ptr<Batch>& batch, const Missing& missing) noexcept;
  [[nodiscard]] bool has_room_for(const Batch& batch) const;
  [[nodiscard]] Missing claim(const std::shared_ptr<Batch>& batch);
  void complete(const std::shared_ptr<Batch>& batch);
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
  mutable std::mutex mutex_;            // of all below
  std::condition_variable changed_;     // some batch's state
  std::vector<std::uint32_t> slot_of_;  // of each row of the table
  std::vector<Slot> slots_;             // and the head of the standby list
  std::uint32_t first_free_ = none;
  std::uint64_t num_free_;
  std::uint64_t num_standby_ = 0;
  std::vector<std::shared_ptr<Batch>> readers_;
  std::deque<std::shared_ptr<Batch>> line_;
  bool is_admitting_ = false;  // some thread is
  BufferTotals totals_;
};

/// Rows in their slots, or on their way there.
class FeatureBuffer::Batch {
 public:
  /// Of each row, in the order of the ids; theirs from wait() to release().
  [[nodiscard]] const std::vector<std::int64_t>& slots() const noexcept { return slots_; }

 private:
  friend class FeatureBuffer;

  std::vector<std::int64_t> slots_;  // in the line: the ids
  bool is_claimed_ = false;
  bool is_finished_ = false;                    // with what it reads itself
  std::uint16_t reader_ = no_reader;            // while it reads
  std::vector<std::shared_ptr<Batch>> others_;  // that were reading some of its rows
  std::shared_ptr<SharedScan::Request> request_;
  std::exception_ptr error_;
  BatchCounts counts_;
};

}  // namespace diskhop
