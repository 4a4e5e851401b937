// Rows for several mini-batches at once, brought by one scan that goes round the table.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "diskhop/rows/rows.hpp"

namespace diskhop {

/// What a request took. Of a read that serves several requests one has the count, the bytes read too;
/// of the seconds each that was on its way has an equal share.
struct ScanCounts {
  ReadCounts reads;
  double seconds = 0;
};

/// One thread reads the table round and round, for all requests that are on their way: where their rows lie close
/// together, a read serves several of them, so that k requests cost far less than k times one. A request joins where
/// the scan stands and has its rows when that is reached again (circular, or shared, scans of databases; Zukowski et
/// al., Cooperative Scans, 2007). Nothing that nobody wants is read but gaps, by the rule of plan_reads().
///
/// Takes staging_bytes from `pool` while it lives, 12 bytes a row of a request while that is on its way, and 32 more
/// in join() for ids that do not ascend. Threading: any number of callers; close() from one, and the destructor after
/// all.
class SharedScan {
 public:
  class Request;

  /// Throws as RowReader does; std::invalid_argument also for a negative max_gap_bytes.
  SharedScan(Engine& engine, const File& file, TableLayout layout, ReadOptions options, BufferPool& pool);
  ~SharedScan() { close(); }
  SharedScan(const SharedScan&) = delete;
  SharedScan& operator=(const SharedScan&) = delete;

  /// Row ids[i] goes to out + to_rows[i] * row_bytes, an empty span of rows standing for 0, 1, 2 ...: any order,
  /// repeats allowed. `out` is written until wait() or leave() has returned. Throws std::out_of_range for an id outside
  /// the table, before anything is read; std::logic_error after close().
  [[nodiscard]] std::shared_ptr<Request> join(std::span<const std::int64_t> ids, std::span<const std::int64_t> to_rows,
                                              std::byte* out);
  /// Returns once all rows are in their places. Throws IoError: nothing of what was to be filled is to be used then.
  ScanCounts wait(const std::shared_ptr<Request>& request);
  /// Gives a request up, and returns once nothing writes for it any more. Does nothing for one that has ended.
  void leave(const std::shared_ptr<Request>& request);
  /// Ends the scan; requests still on their way end with an error.
  void close();
  [[nodiscard]] const TableLayout& layout() const noexcept { return layout_; }

 private:
  class Sweep;

  Engine& engine_;
  const File& file_;
  TableLayout layout_;
  ReadOptions options_;
  ReadGroups groups_;
  BufferPool& pool_;
  std::mutex mutex_;
  std::condition_variable changed_;  // for the thread: requests that join or leave; for callers: those that have ended
  std::list<std::shared_ptr<Request>> joining_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace diskhop
