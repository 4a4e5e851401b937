// Rows for several mini-batches at once, from one scan that cycles through the table.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "diskhop/base/owner_process.hpp"
#include "diskhop/rows/rows.hpp"

namespace diskhop {

/// Cost of one request. A read that serves several requests counts, with its bytes, for one of them; its seconds are
/// divided equally among all requests in flight.
struct ScanCounts {
  ReadCounts reads;
  double seconds = 0;
};

/// Notified by the scan's thread, which holds no lock, once rows are in their places.
class Arrivals {
 public:
  Arrivals() = default;
  virtual ~Arrivals() = default;
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  /// to_rows: places of rows that one read has brought; not called once the request has ended.
  virtual void arrived(std::span<const std::uint32_t> to_rows) noexcept = 0;
};

/// Reads the table in a cycle, by one thread, for all requests in flight. One read serves several requests for rows
/// that are close together, so k requests cost far less than k times one. A request joins at the scan's position and is
/// complete when the scan is back there (circular, or shared, scans of databases; Zukowski et al., Cooperative Scans,
/// 2007). Unrequested rows are read only as gaps, by the rule of plan_reads().
///
/// Memory: staging_bytes from `pool` for its lifetime, 12 bytes per row of a request in flight, and 32 more in join()
/// for ids that do not ascend. Threading: any number of callers; close() from one; the destructor after all others.
/// In a forked child join() throws ForkedError and close() does nothing; the object must not be destroyed there.
class SharedScan {
 public:
  class Request;

  /// A caller whose requests follow each other, one at a time. While there are some, requests begin together: once the
  /// scan has served those before, and all of these callers have one. If the last ones had few reads in common, half of
  /// the callers are enough, so that the disk is busy while the others compute.
  class Gathering {
   public:
    explicit Gathering(SharedScan& scan);
    ~Gathering();
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;

   private:
    SharedScan& scan_;
  };

  /// Throws as RowReader does; std::invalid_argument also for a negative max_gap_bytes.
  SharedScan(Engine& engine, const File& file, TableLayout layout, ReadOptions options, BufferPool& pool);
  ~SharedScan() { close(); }
  SharedScan(const SharedScan&) = delete;
  SharedScan& operator=(const SharedScan&) = delete;

  /// Requests row ids[i] at out + to_rows[i] * row_bytes; an empty span of rows means 0, 1, 2 ... ids: any order,
  /// repeats allowed. `out` is written until wait() or leave() has returned. Throws std::out_of_range for an id outside
  /// the table, before anything is read; std::logic_error after close(). arrivals: notified of each read; null for
  /// none.
  [[nodiscard]] std::shared_ptr<Request> join(std::span<const std::int64_t> ids, std::span<const std::int64_t> to_rows,
                                              std::byte* out, Arrivals* arrivals = nullptr);
  /// Returns once all rows are in their places. Throws IoError; the output is then invalid.
  ScanCounts wait(const std::shared_ptr<Request>& request);
  /// Returns once is_enough() holds, which is asked whenever rows of any request have arrived, or the request has
  /// ended.
  void wait_until(const std::shared_ptr<Request>& request, const std::function<bool()>& is_enough);
  /// Cancels a request, and returns once its output is no longer written. Does nothing if the request has ended.
  void leave(const std::shared_ptr<Request>& request);
  /// Ends the scan; requests in flight fail.
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
  // For the scan: requests that join or leave; for callers: requests that ended, and rows that arrived.
  std::condition_variable changed_;
  std::size_t num_watching_ = 0;  // callers that wait for rows to arrive
  std::list<std::shared_ptr<Request>> joining_;
  std::size_t num_gathering_ = 0;
  bool is_closing_ = false;
  const OwnerProcess process_{"scan"};
  std::thread thread_;
};

}  // namespace diskhop
