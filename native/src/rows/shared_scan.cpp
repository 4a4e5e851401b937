#include "diskhop/rows/shared_scan.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/short_slices.hpp"
#include "base/signals_blocked.hpp"
#include "rows/placed_ids.hpp"
#include "rows/read_groups.hpp"

namespace diskhop {

namespace {

// Parts of requests that a read must serve on average, for requests to wait for each other; with fewer it is better to
// keep the disk busy.
constexpr std::uint64_t least_parts_per_read = 2;

}  // namespace

/// Rows of one request, ascending by id. Owned by the scan's thread until the request ends; has_left and has_ended are
/// guarded by the mutex.
class SharedScan::Request {
 public:
  Request(std::span<const std::int64_t> ids, std::span<const std::int64_t> to_rows, std::uint64_t num_rows,
          std::byte* destination, Arrivals* notified)
      : out(destination), arrivals(notified), unplanned(ids.size()) {
    sorted_ids.reserve(ids.size());
    rows.reserve(ids.size());
    if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>{}) == ids.end()) {
      for (std::size_t place = 0; place < ids.size(); ++place) {
        check_id(ids[place], num_rows);
        add(static_cast<std::uint64_t>(ids[place]), place, to_rows);
      }
      return;
    }
    for (const auto& [id, place] : sort_by_id(ids, num_rows)) add(id, place, to_rows);
  }

  /// Whether rows ahead of the scan, in this cycle, are not planned yet.
  [[nodiscard]] bool has_row_ahead() const { return unplanned > 0 && next < sorted_ids.size(); }
  void fail(std::exception_ptr reason) {
    if (!error) error = std::move(reason);
    unplanned = 0;
  }
  void end() {
    has_ended = true;
    sorted_ids = {};
    rows = {};
  }

  std::vector<std::int64_t> sorted_ids;
  std::vector<std::uint32_t> rows;
  std::byte* out;
  Arrivals* arrivals;
  std::size_t next = 0;
  std::size_t unplanned;
  std::size_t parts_in_flight = 0;
  ScanCounts counts;
  std::exception_ptr error;
  bool has_left = false;
  bool has_ended = false;

 private:
  void add(std::uint64_t id, std::uint64_t place, std::span<const std::int64_t> to_rows) {
    const std::uint64_t to_row = to_rows.empty() ? place : static_cast<std::uint64_t>(to_rows[place]);
    if (to_row > std::numeric_limits<std::uint32_t>::max()) {
      throw std::length_error("rows go to one of 2^32 places, not to place " + std::to_string(to_row));
    }
    sorted_ids.push_back(static_cast<std::int64_t>(id));
    rows.push_back(static_cast<std::uint32_t>(to_row));
  }
};

/// State of the scan's thread: requests in flight, and groups of reads.
class SharedScan::Sweep {
 public:
  explicit Sweep(SharedScan& scan)
      : scan_(scan),
        rule_{.layout = scan.layout_,
              .max_gap_bytes = static_cast<std::uint64_t>(scan.options_.max_gap_bytes),
              .alignment = scan.file_.offset_alignment(),
              .max_read_bytes = scan.groups_.max_read_bytes},
        staging_(scan.pool_, scan.groups_.num_groups * scan.groups_.group_bytes),
        groups_(scan.groups_.num_groups),
        window_(scan.engine_, Priority::demand) {}

  void run() {
    while (update_requests()) {
      if (num_submitted_ - num_copied_ < groups_.size() - 1 && submit_group()) continue;
      if (num_copied_ < num_submitted_) finish_oldest();
    }
  }

 private:
  /// Rows of one request, as positions in sorted_ids, that lie within one of a group's reads.
  struct Part {
    Request* request;
    std::size_t read;
    std::size_t first;
    std::size_t count;
  };
  struct Group {
    ReadGroup reads;
    std::vector<Part> parts;
  };

  /// Adds requests that joined and removes those that ended; waits while there is no work. Returns false once the scan
  /// must end.
  bool update_requests() {
    std::unique_lock lock(scan_.mutex_);
    share_seconds();
    while (true) {
      add_joined();
      const std::size_t num_ended = std::erase_if(active_, [&](const std::shared_ptr<Request>& request) {
        const bool lacks_rows = request->unplanned > 0 || request->parts_in_flight > 0;
        if (lacks_rows && scan_.is_closing_) {
          request->fail(std::make_exception_ptr(std::runtime_error("the scan was closed before all rows were read")));
        }
        if (lacks_rows && request->has_left) {
          request->fail(
              std::make_exception_ptr(std::logic_error("the request was cancelled before its rows were read")));
        }
        if (request->unplanned > 0 || request->parts_in_flight > 0) return false;
        request->end();
        return true;
      });
      if (num_ended > 0) scan_.changed_.notify_all();
      if (!active_.empty()) return true;
      end_group();
      if (scan_.is_closing_) return false;
      // The last requests of a group may have ended just now.
      if (scan_.joining_.empty() || !may_begin()) scan_.changed_.wait(lock);
      since_ = std::chrono::steady_clock::now();
    }
  }

  /// Whether requests that joined may begin. The mutex is locked.
  [[nodiscard]] bool may_begin() const {
    if (scan_.num_gathering_ == 0 || scan_.is_closing_) return true;
    const std::size_t wanted = shares_reads_ ? scan_.num_gathering_ : (scan_.num_gathering_ + 1) / 2;
    return active_.empty() && scan_.joining_.size() >= wanted;
  }

  /// Notes whether the reads for requests that began together served several of them.
  void end_group() {
    if (num_reads_ > 0) shares_reads_ = num_parts_ >= least_parts_per_read * num_reads_;
    num_reads_ = num_parts_ = 0;
  }

  /// Adds requests that joined, if they may begin. The mutex is locked.
  void add_joined() {
    if (!may_begin()) return;
    for (const auto& request : scan_.joining_) {
      const auto& ids = request->sorted_ids;
      request->next = static_cast<std::size_t>(std::ranges::lower_bound(ids, position_) - ids.begin());
    }
    active_.splice(active_.end(), scan_.joining_);
  }

  /// Returns false if no row is left to plan.
  bool submit_group() {
    const std::size_t slot = num_submitted_ % groups_.size();
    Group& group = groups_[slot];
    group.reads.start(staging_.data() + slot * scan_.groups_.group_bytes, scan_.groups_);
    group.parts.clear();
    try {
      fill_group(group);
      if (group.parts.empty()) return false;
      window_.submit(group.reads.ops());
    } catch (...) {  // no memory or no threads
      take_back(group, 0);
      for (const auto& request : active_) request->fail(std::current_exception());
      return false;
    }
    ++num_submitted_;
    return true;
  }

  void fill_group(Group& group) {
    const std::uint64_t table_bytes = scan_.layout_.num_rows * scan_.layout_.row_stride;
    while (group.reads.ops().size() < scan_.groups_.most_reads && begin_round()) {
      const std::size_t first_part = group.parts.size();
      const Extent read = plan_read(group);
      const std::uint64_t num_bytes = read.end - read.begin;
      if (!group.reads.add(scan_.file_, read.begin, num_bytes, std::min(num_bytes, table_bytes - read.begin))) {
        take_back(group, first_part);
        return;
      }
      position_ = static_cast<std::int64_t>((read.end + scan_.layout_.row_stride - 1) / scan_.layout_.row_stride);
      ++num_reads_;
      num_parts_ += group.parts.size() - first_part;
      ReadCounts& counts = group.parts[first_part].request->counts.reads;
      ++counts.reads;
      counts.bytes_read += num_bytes;
    }
  }

  /// Returns whether there are rows to plan; restarts at the table's beginning if none is ahead.
  bool begin_round() {
    if (std::ranges::any_of(active_, [](const auto& request) { return request->has_row_ahead(); })) return true;
    position_ = 0;
    for (const auto& request : active_) request->next = 0;
    return std::ranges::any_of(active_, [](const auto& request) { return request->unplanned > 0; });
  }

  /// Returns the next read, and adds its rows to the group's parts.
  Extent plan_read(Group& group) {
    const std::size_t index = group.reads.ops().size();
    std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
    for (const auto& request : active_) {
      if (request->has_row_ahead()) lowest = std::min(lowest, request->sorted_ids[request->next]);
    }
    Extent read = rule_.blocks_of(lowest);
    // Each request's rows extend the read until no request can extend it.
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (const auto& request : active_) {
        const std::size_t first = request->next;
        while (request->has_row_ahead()) {
          const Extent row = rule_.blocks_of(request->sorted_ids[request->next]);
          if (!rule_.may_take(read, row)) break;
          read.end = std::max(read.end, row.end);
          ++request->next;
          --request->unplanned;
        }
        if (request->next == first) continue;
        has_grown = true;
        group.parts.push_back({request.get(), index, first, request->next - first});
        ++request->parts_in_flight;
      }
    }
    return read;
  }

  static void take_back(Group& group, std::size_t first_part) {
    for (; group.parts.size() > first_part; group.parts.pop_back()) {
      const Part& part = group.parts.back();
      part.request->next -= part.count;
      part.request->unplanned += part.count;
      --part.request->parts_in_flight;
    }
  }

  void finish_oldest() {
    const Group& group = groups_[num_copied_ % groups_.size()];
    std::exception_ptr error;
    try {
      window_.wait_oldest();
    } catch (...) {
      error = std::current_exception();
    }
    // The disk continues while these rows are copied: it may have finished all submitted reads.
    {
      const std::scoped_lock lock(scan_.mutex_);
      add_joined();
    }
    submit_group();
    ++num_copied_;
    for (const Part& part : group.parts) {
      --part.request->parts_in_flight;
      if (error) {
        part.request->fail(error);
      } else if (!part.request->error) {
        copy_part(part, group.reads.ops()[part.read]);
      }
    }
    const std::scoped_lock lock(scan_.mutex_);
    if (scan_.num_watching_ > 0) scan_.changed_.notify_all();
  }

  void copy_part(const Part& part, const Op& op) const {
    Request& request = *part.request;
    const std::uint64_t row_bytes = scan_.layout_.row_bytes;
    const std::uint64_t row_stride = scan_.layout_.row_stride;
    const auto copy_rows = [&](std::size_t num_bytes) {
      for (std::size_t index = part.first; index < part.first + part.count; ++index) {
        const std::uint64_t offset = static_cast<std::uint64_t>(request.sorted_ids[index]) * row_stride;
        std::memcpy(request.out + request.rows[index] * num_bytes, op.buffer + (offset - op.offset), num_bytes);
      }
    };
    // A call per neighbour of four bytes would take longer than the copy.
    if (row_bytes == sizeof(std::uint32_t)) {
      copy_rows(sizeof(std::uint32_t));
    } else {
      copy_rows(row_bytes);
    }
    request.counts.reads.bytes_copied += part.count * row_bytes;
    if (request.arrivals != nullptr) request.arrivals->arrived({request.rows.data() + part.first, part.count});
  }

  void share_seconds() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - since_).count();
    for (const auto& request : active_) request->counts.seconds += seconds / static_cast<double>(active_.size());
    since_ = now;
  }

  SharedScan& scan_;
  CoalescingRule rule_;
  PooledBuffer staging_;
  std::vector<Group> groups_;
  ReadWindow window_;
  std::list<std::shared_ptr<Request>> active_;  // in the order in which they joined
  std::int64_t position_ = 0;                   // rows from here on are not read yet in this cycle
  std::uint64_t num_submitted_ = 0;
  std::uint64_t num_copied_ = 0;
  // Of the requests that began together, and whether the last ones shared reads; before any, they are taken to.
  std::uint64_t num_reads_ = 0;
  std::uint64_t num_parts_ = 0;
  bool shares_reads_ = true;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

SharedScan::SharedScan(Engine& engine, const File& file, TableLayout layout, ReadOptions options, BufferPool& pool)
    : engine_(engine),
      file_(file),
      layout_(layout),
      options_(options),
      groups_(share_staging(engine, file, layout, options)),
      pool_(pool) {
  if (options.max_gap_bytes < 0) throw std::invalid_argument("a scan merges reads: max_gap_bytes must be at least 0");
  auto sweep = std::make_unique<Sweep>(*this);
  const SignalsBlocked blocked;
  thread_ = std::thread([sweep = std::move(sweep)] {
    request_short_slices();
    sweep->run();
  });
}

SharedScan::Gathering::Gathering(SharedScan& scan) : scan_(scan) {
  const std::scoped_lock lock(scan_.mutex_);
  ++scan_.num_gathering_;
}

SharedScan::Gathering::~Gathering() {
  {
    const std::scoped_lock lock(scan_.mutex_);
    --scan_.num_gathering_;
  }
  scan_.changed_.notify_all();  // those that wait may be enough now
}

void SharedScan::close() {
  if (!thread_.joinable() || !process_.is_here()) return;
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<SharedScan::Request> SharedScan::join(std::span<const std::int64_t> ids,
                                                      std::span<const std::int64_t> to_rows, std::byte* out,
                                                      Arrivals* arrivals) {
  process_.require_here();
  auto request = std::make_shared<Request>(ids, to_rows, layout_.num_rows, out, arrivals);
  {
    const std::scoped_lock lock(mutex_);
    if (is_closing_) throw std::logic_error("this scan was closed: open another");
    joining_.push_back(request);
  }
  changed_.notify_all();
  return request;
}

ScanCounts SharedScan::wait(const std::shared_ptr<Request>& request) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return request->has_ended; });
  if (request->error) std::rethrow_exception(request->error);
  return request->counts;
}

void SharedScan::wait_until(const std::shared_ptr<Request>& request, const std::function<bool()>& is_enough) {
  std::unique_lock lock(mutex_);
  ++num_watching_;
  changed_.wait(lock, [&] { return request->has_ended || is_enough(); });
  --num_watching_;
}

void SharedScan::leave(const std::shared_ptr<Request>& request) {
  std::unique_lock lock(mutex_);
  request->has_left = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return request->has_ended; });
}

}  // namespace diskhop
