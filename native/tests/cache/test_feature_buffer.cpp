#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/cache/feature_buffer.hpp"
#include "table_on_disk.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::draw_ids;
using diskhop::testing::engine_names;
using diskhop::testing::TableOnDisk;

namespace {

using Ids = std::vector<std::int64_t>;
using Ticket = std::shared_ptr<FeatureBuffer::Batch>;

/// Distinct ids, in no order.
Ids draw_distinct(std::uint64_t key, std::size_t most, std::uint64_t num_rows) {
  Ids ids;
  std::set<std::int64_t> seen;
  for (const std::int64_t id : draw_ids(key, most, num_rows)) {
    if (seen.insert(id).second) ids.push_back(id);
  }
  return ids;
}

/// A buffer over a table, with all that it stands on. No read is of two rows.
struct Bench {
  Bench(const TableOnDisk& on_disk, const std::string& engine_name, std::uint64_t num_slots,
        std::uint64_t most_standby = 1 << 20, std::shared_ptr<FaultInjector> faults = nullptr)
      : table(on_disk),
        injector(faults ? std::move(faults) : std::make_shared<FaultInjector>(std::vector<FaultRule>{}, 0)),
        engine(make_engine(engine_name, 16, injector)),
        file(table.path, FileMode::read, true),
        scan(*engine, file, table.layout, {.max_gap_bytes = 0, .max_read_bytes = 8192, .staging_bytes = 128 << 10},
             pool),
        rows(num_slots * table.layout.row_bytes, '?'),
        buffer(scan, reinterpret_cast<std::byte*>(rows.data()), num_slots, most_standby) {}

  [[nodiscard]] std::vector<char> seen_by(const Ticket& batch) const {
    std::vector<char> seen;
    for (const std::int64_t slot : batch->slots()) {
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(slot * table.layout.row_bytes);
      seen.insert(seen.end(), row, row + static_cast<std::ptrdiff_t>(table.layout.row_bytes));
    }
    return seen;
  }
  void check_totals() const {
    const BufferTotals totals = buffer.totals();
    check(totals.read == totals.dropped + totals.held, "no row was read while it was there or on its way");
  }

  const TableOnDisk& table;
  BufferPool pool{16 << 20};
  std::shared_ptr<FaultInjector> injector;
  std::unique_ptr<Engine> engine;
  File file;
  SharedScan scan;
  std::vector<char> rows;
  FeatureBuffer buffer;
};

/// By lists that are searched: which rows of a batch are missing, where all of them have arrived.
class ListedBuffer {
 public:
  ListedBuffer(std::size_t num_slots, std::size_t most_standby) : num_slots_(num_slots), most_standby_(most_standby) {}
  std::size_t submit(const Ids& ids) {
    std::size_t num_missing = 0;
    for (const std::int64_t id : ids) {
      standby_.remove(id);
      num_missing += users_[id]++ == 0 && !held_.contains(id) ? 1 : 0;
      held_.insert(id);
    }
    while (held_.size() > num_slots_) forget_oldest();
    return num_missing;
  }
  void release(const Ids& ids) {
    for (const std::int64_t id : ids) {
      if (--users_[id] > 0) continue;
      standby_.push_back(id);
      if (standby_.size() > most_standby_) forget_oldest();
    }
  }

 private:
  void forget_oldest() {
    held_.erase(standby_.front());
    standby_.pop_front();
  }

  std::size_t num_slots_, most_standby_;
  std::set<std::int64_t> held_;
  std::list<std::int64_t> standby_;  // the least recently used first
  std::map<std::int64_t, int> users_;
};

void test_rows_and_misses_equal_those_of_searched_lists() {
  const TableOnDisk table(600, 40, 8192);
  for (const std::string& name : engine_names()) {
    for (const std::uint64_t most_standby : {0, 70, 1000}) {
      Bench bench(table, name, 300, most_standby);
      ListedBuffer expected(300, most_standby);
      std::deque<std::pair<Ids, Ticket>> used;
      std::size_t num_missing = 0;
      for (std::uint64_t number = 0; number < 60; ++number) {
        if (used.size() == 3) {
          check(bench.seen_by(used.front().second) == table.rows(used.front().first), "rows stay until the release");
          bench.buffer.release(used.front().second);
          expected.release(used.front().first);
          used.pop_front();
        }
        Ids ids = draw_distinct(number, 80, 600);
        Ticket batch = bench.buffer.submit(ids);
        const BatchCounts counts = bench.buffer.wait(batch);
        const std::size_t missing = expected.submit(ids);
        check(counts.hits == ids.size() - missing && counts.shared == 0, "hits are those of the lists");
        check(counts.scan.reads.reads == missing, "what is missing is read, and nothing else");
        check(bench.seen_by(batch) == table.rows(ids), "rows are those of the table");
        num_missing += missing;
        used.emplace_back(std::move(ids), std::move(batch));
      }
      check(bench.buffer.totals().read == num_missing, "all is counted");
      bench.check_totals();
    }
  }
}

template <typename Item>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}
  bool put(Item item) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_closed_ || items_.size() < capacity_; });
    if (is_closed_) return false;
    items_.push_back(std::move(item));
    changed_.notify_all();
    return true;
  }
  std::optional<Item> get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    Item item = std::move(items_.front());
    items_.pop_front();
    changed_.notify_all();
    return item;
  }
  /// What is in it can still be taken out.
  void close() {
    const std::scoped_lock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool is_closed_ = false;
};

struct Extracted {
  Ids ids;
  Ticket batch;
};

/// GNNDrive's pipeline: samplers, extractors, a trainer, a releaser, and queues between them.
class Drive {
 public:
  Drive(Bench& bench, unsigned num_samplers, unsigned num_extractors, int num_batches, std::size_t rows_a_batch)
      : bench_(bench), num_batches_(num_batches), rows_a_batch_(rows_a_batch) {
    for (unsigned index = 0; index < num_samplers; ++index) threads_.emplace_back([this] { sample(); });
    for (unsigned index = 0; index < num_extractors; ++index) threads_.emplace_back([this] { extract(); });
    threads_.emplace_back([this] { release_used(); });
  }
  ~Drive() { stop(); }
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  /// The trainer: so many batches.
  void train(int num_batches) {
    for (int count = 0; count < num_batches; ++count) {
      auto extracted = trained_.get();
      check(extracted.has_value(), "batches come");
      check(bench_.seen_by(extracted->batch) == bench_.table.rows(extracted->ids), "rows are those of the table");
      if (!used_.put(std::move(*extracted))) bench_.buffer.release(extracted->batch);
    }
  }
  void stop() {
    sampled_.close();
    trained_.close();
    used_.close();
    {
      const std::scoped_lock lock(mutex_);
      is_stopped_ = true;
      for (const Ticket& batch : submitted_) bench_.buffer.cancel(batch);
    }
    threads_.clear();
    while (auto left = trained_.get()) bench_.buffer.release(left->batch);
    while (auto left = used_.get()) bench_.buffer.release(left->batch);
  }

 private:
  void sample() {
    while (true) {
      const int number = next_++;
      if (number >= num_batches_) return;
      if (!sampled_.put(draw_distinct(static_cast<std::uint64_t>(number), rows_a_batch_, bench_.table.layout.num_rows)))
        return;
    }
  }
  void extract() {
    while (auto ids = sampled_.get()) {
      Ticket batch;
      {
        const std::scoped_lock lock(mutex_);
        if (is_stopped_) return;
        batch = bench_.buffer.submit(*ids);
        submitted_.insert(batch);
      }
      bool is_there = true;
      try {
        bench_.buffer.wait(batch);
      } catch (const std::logic_error&) {
        is_there = false;
      }
      {
        const std::scoped_lock lock(mutex_);
        check(is_there || is_stopped_, "only what was given up fails");
        submitted_.erase(batch);
      }
      if (!is_there || !trained_.put({*ids, batch})) bench_.buffer.release(batch);
    }
  }
  void release_used() {
    while (auto used = used_.get()) bench_.buffer.release(used->batch);
  }

  Bench& bench_;
  int num_batches_;
  std::size_t rows_a_batch_;
  std::atomic<int> next_ = 0;
  BoundedQueue<Ids> sampled_{6};
  BoundedQueue<Extracted> trained_{4};
  BoundedQueue<Extracted> used_{4};
  std::mutex mutex_;
  std::set<Ticket> submitted_;  // and not there yet
  bool is_stopped_ = false;
  std::vector<std::jthread> threads_;
};

void test_eight_extractors_and_four_samplers() {
  const TableOnDisk table(2000, 60, 4096);
  for (const std::string& name : engine_names()) {
    {
      // Slots for a few batches only: whoever comes waits, and rows are forgotten all the time.
      Bench bench(table, name, 700);
      Drive drive(bench, 4, 8, 200, 200);
      drive.train(200);
      drive.stop();
      bench.check_totals();
    }
    // Slots for the whole table: each row is read once, whoever asks for it first.
    Bench bench(table, name, 2000);
    Drive drive(bench, 4, 8, 200, 200);
    drive.train(200);
    drive.stop();
    std::set<std::int64_t> asked;
    for (std::uint64_t number = 0; number < 200; ++number) {
      const Ids ids = draw_distinct(number, 200, 2000);
      asked.insert(ids.begin(), ids.end());
    }
    check(bench.injector->count(Counted::reads) == asked.size(), "the disk was asked for each row once");
  }
}

void test_a_thousand_starts_and_early_exits() {
  const TableOnDisk table(500, 60, 512);
  for (const std::string& name : engine_names()) {
    // Buffers are started anew now and then, and mostly used again: rows left behind serve the next pass.
    for (std::uint64_t start = 0; start < 20; ++start) {
      Bench bench(table, name, 150);
      for (std::uint64_t again = 0; again < 25; ++again) {
        const std::uint32_t draw = draw32(start, static_cast<std::uint32_t>(again));
        Drive drive(bench, 1 + draw % 4, 1 + draw % 5, 30, 40);
        drive.train(static_cast<int>(draw % 7));
        if (draw % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw % 500));
      }
      bench.check_totals();
      // All slots are free again.
      const Ids all = draw_distinct(start, 150, 500);
      const Ticket batch = bench.buffer.submit(all);
      bench.buffer.wait(batch);
      bench.buffer.release(batch);
    }
  }
}

void test_each_read_may_fail() {
  const TableOnDisk table(200, 60, 8192);
  for (const std::string& name : engine_names()) {
    for (const FaultKind kind : {FaultKind::io_error, FaultKind::truncated}) {
      for (std::uint64_t nth = 1;; ++nth) {
        const std::vector<FaultRule> rules{{.kind = kind, .counted = Counted::reads, .nth = nth}};
        auto injector = std::make_shared<FaultInjector>(rules, 0);
        Bench bench(table, name, 120, 1000, injector);
        std::size_t num_failed = 0;
        for (std::uint64_t pair = 0; pair < 3; ++pair) {
          // The second waits for rows of the first.
          const Ids first_ids = draw_distinct(pair, 40, 200);
          const Ids second_ids = draw_distinct(pair + 9, 40, 200);
          const Ticket first = bench.buffer.submit(first_ids);
          const Ticket second = bench.buffer.submit(second_ids);
          for (const auto& [ids, batch] : {std::pair(&second_ids, second), std::pair(&first_ids, first)}) {
            try {
              bench.buffer.wait(batch);
              check(bench.seen_by(batch) == table.rows(*ids), "who was not told of an error has all rows");
            } catch (const IoError& error) {
              check(error.path() == table.path, "the error names the file");
              ++num_failed;
            }
          }
          bench.buffer.release(first);
          bench.buffer.release(second);
        }
        bench.check_totals();
        const bool was_hit = injector->count(Counted::reads) >= nth;
        check(was_hit ? num_failed == 1 || num_failed == 2 : num_failed == 0, "one read fails those it is for");
        if (!was_hit) break;
        // Nothing that failed is taken for valid.
        const Ids all = draw_distinct(99, 100, 200);
        const Ticket batch = bench.buffer.submit(all);
        bench.buffer.wait(batch);
        check(bench.seen_by(batch) == table.rows(all), "rows that failed are read again");
        bench.buffer.release(batch);
      }
    }
  }
}

/// What wait() will return, on a thread of its own.
std::future<BatchCounts> wait_for(Bench& bench, const Ticket& batch) {
  return std::async(std::launch::async, [&bench, batch] { return bench.buffer.wait(batch); });
}

void check_waits(const std::future<BatchCounts>& counts, const std::string& claim) {
  check(counts.wait_for(std::chrono::milliseconds(30)) == std::future_status::timeout, claim);
}

void test_a_large_batch_waits_for_the_whole_buffer() {
  const TableOnDisk table(400, 60, 512);
  Bench bench(table, "threads", 100);
  const Ids small{1, 2, 3};
  Ids large;
  for (std::int64_t id = 10; id < 110; ++id) large.push_back(id);
  const Ticket used = bench.buffer.submit(small);
  bench.buffer.wait(used);
  const Ticket whole = bench.buffer.submit(large);
  const Ticket late = bench.buffer.submit(small);
  auto whole_counts = wait_for(bench, whole);
  auto late_counts = wait_for(bench, late);
  check_waits(whole_counts, "a slot is in use");
  check_waits(late_counts, "who comes later waits behind it, although there would be room");
  bench.buffer.release(used);
  whole_counts.get();
  check(bench.seen_by(whole) == table.rows(large), "it has the whole buffer");
  bench.buffer.release(whole);
  late_counts.get();
  check(bench.seen_by(late) == table.rows(small), "then the next has its turn");
  bench.buffer.release(late);
  large.push_back(110);
  check_throws<std::length_error>([&] { static_cast<void>(bench.buffer.submit(large)); }, "the buffer is too small");
  check_throws<std::out_of_range>([&] { static_cast<void>(bench.buffer.submit(Ids{400})); }, "no such row");
}

void test_who_stands_in_line_can_leave() {
  const TableOnDisk table(400, 60, 512);
  Bench bench(table, "threads", 4);
  const Ticket used = bench.buffer.submit(Ids{1, 2, 3});
  const Ticket waiting = bench.buffer.submit(Ids{4, 5, 6});
  const Ticket next = bench.buffer.submit(Ids{7});
  auto counts = wait_for(bench, waiting);
  check_waits(counts, "there is no room");
  bench.buffer.cancel(waiting);
  check_throws<std::logic_error>([&] { counts.get(); }, "who waits for it is told");
  bench.buffer.wait(next);
  check(bench.seen_by(next) == table.rows({7}), "those behind it go on");
  bench.buffer.cancel(next);  // which has its rows
  check(bench.seen_by(next) == table.rows({7}), "nothing happens");
  for (const Ticket& batch : {used, waiting, next}) bench.buffer.release(batch);
  bench.check_totals();
}

}  // namespace

int main() {
  test_rows_and_misses_equal_those_of_searched_lists();
  test_eight_extractors_and_four_samplers();
  test_a_thousand_starts_and_early_exits();
  test_each_read_may_fail();
  test_a_large_batch_waits_for_the_whole_buffer();
  test_who_stands_in_line_can_leave();
}
