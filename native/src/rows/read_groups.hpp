// Reads of rows in groups: how staging is divided among groups in flight, and which rows share a read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "diskhop/io/engine.hpp"
#include "diskhop/rows/rows.hpp"

namespace diskhop {

inline std::uint64_t round_up(std::uint64_t num_bytes, std::uint64_t block_bytes) {
  return (num_bytes + block_bytes - 1) / block_bytes * block_bytes;
}

/// Bytes [begin, end) of a file.
struct Extent {
  std::uint64_t begin;
  std::uint64_t end;
};

/// When rows share a read; see plan_reads().
struct CoalescingRule {
  TableLayout layout;
  std::uint64_t max_gap_bytes;
  std::uint64_t alignment;
  std::uint64_t max_read_bytes;

  /// Blocks of a row: its bytes, aligned outwards.
  [[nodiscard]] Extent blocks_of(std::int64_t id) const {
    const std::uint64_t row_begin = static_cast<std::uint64_t>(id) * layout.row_stride;
    return {row_begin & ~(alignment - 1), (row_begin + layout.row_bytes + alignment - 1) & ~(alignment - 1)};
  }
  /// Whether a read may grow by the blocks of a row that begins no earlier. Blocks within the read cost nothing.
  [[nodiscard]] bool may_take(const Extent& read, const Extent& row) const {
    const bool is_near = row.begin <= read.end || row.begin - read.end <= max_gap_bytes;
    return is_near && (row.end <= read.end || row.end - read.begin <= max_read_bytes);
  }
};

/// Divides staging into groups. Throws std::invalid_argument for a layout that breaks its rule, or if staging is too
/// small for two reads of one row; the message names the minimum.
[[nodiscard]] ReadGroups share_staging(const Engine& engine, const File& file, const TableLayout& layout,
                                       const ReadOptions& options);

/// Reads that are submitted together, and the free rest of their piece of staging.
class ReadGroup {
 public:
  /// Removes all reads; the next ones are stored from `begin` on.
  void start(std::byte* begin, const ReadGroups& groups) {
    ops_.clear();
    free_ = begin;
    end_ = begin + groups.group_bytes;
    block_bytes_ = groups.block_bytes;
  }
  /// Returns false if there is no space for a read of this many bytes.
  bool add(const File& file, std::uint64_t offset, std::uint64_t num_bytes, std::uint64_t required_bytes) {
    const auto free_bytes = static_cast<std::uint64_t>(end_ - free_);
    if (num_bytes > free_bytes) return false;
    ops_.push_back({.kind = OperationKind::read,
                    .file = &file,
                    .offset = offset,
                    .buffer = free_,
                    .num_bytes = num_bytes,
                    .required_bytes = required_bytes});
    free_ += std::min(round_up(num_bytes, block_bytes_), free_bytes);
    return true;
  }
  [[nodiscard]] const std::vector<Op>& ops() const noexcept { return ops_; }

 private:
  std::vector<Op> ops_;
  std::byte* free_ = nullptr;
  std::byte* end_ = nullptr;
  std::uint64_t block_bytes_ = 1;
};

/// Groups of reads in flight, the oldest first. Lifetime: staging must outlive it; the destructor waits for all groups.
class ReadWindow {
 public:
  ReadWindow(Engine& engine, Priority priority) : engine_(engine), priority_(priority) {}
  ~ReadWindow() {
    while (!tickets_.empty()) {
      try {
        wait_oldest();
      } catch (...) {  // report the error that caused this, not a later one
      }
    }
  }
  ReadWindow(const ReadWindow&) = delete;
  ReadWindow& operator=(const ReadWindow&) = delete;

  void submit(std::span<const Op> ops) {
    tickets_.push_back(0);  // first, so that a ticket is not lost when memory runs out
    try {
      tickets_.back() = engine_.submit(ops, priority_);
    } catch (...) {
      tickets_.pop_back();
      throw;
    }
  }
  void wait_oldest() {
    const Ticket oldest = tickets_.front();
    tickets_.pop_front();
    engine_.wait(oldest);
  }

 private:
  Engine& engine_;
  Priority priority_;
  std::deque<Ticket> tickets_;
};

}  // namespace diskhop
