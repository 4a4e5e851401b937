#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/rows/shared_scan.hpp"
#include "table_on_disk.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::draw_ids;
using diskhop::testing::engine_names;
using diskhop::testing::TableOnDisk;

namespace {

/// Delays all reads until the gate is opened.
class GatedEngine final : public Engine {
 public:
  explicit GatedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  void open() { gate_.count_down(); }
  Ticket submit(std::span<const Op> ops, Priority priority) override {
    num_submitted += ops.size();
    return engine_->submit(ops, priority);
  }
  void wait(Ticket ticket) override {
    is_waited_for.store(true);
    is_waited_for.notify_all();
    gate_.wait();
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    has_signals_blocked = sigismember(&blocked, SIGINT) == 1;
    engine_->wait(ticket);
  }
  bool poll(Ticket ticket) override { return engine_->poll(ticket); }
  std::string name() const override { return engine_->name(); }
  unsigned depth() const override { return engine_->depth(); }

  std::atomic<std::size_t> num_submitted = 0;
  std::atomic<bool> is_waited_for = false;        // the scan has submitted all that its window allows
  std::atomic<bool> has_signals_blocked = false;  // of the last thread that waited

 private:
  std::unique_ptr<Engine> engine_;
  std::latch gate_{1};
};

/// A request with memory of its own.
struct Wanted {
  Wanted(SharedScan& scan, std::vector<std::int64_t> wanted_ids)
      : ids(std::move(wanted_ids)), out(ids.size() * scan.layout().row_bytes, '?') {
    request = scan.join(ids, {}, reinterpret_cast<std::byte*>(out.data()));
  }

  std::vector<std::int64_t> ids;
  std::vector<char> out;
  std::shared_ptr<SharedScan::Request> request;
};

void test_requests_of_several_threads_equal_indexing() {
  BufferPool pool(64 << 20);
  const TableOnDisk table(5000, 60, 64);
  for (const std::string& name : engine_names()) {
    const auto engine = make_engine(name, 32, nullptr);
    const File file(table.path, FileMode::read, true);
    for (const std::int64_t max_gap_bytes : {0, 5000}) {
      SharedScan scan(*engine, file, table.layout,
                      {.max_gap_bytes = max_gap_bytes, .max_read_bytes = 8192, .staging_bytes = 64 << 10}, pool);
      std::vector<std::jthread> threads;
      for (std::uint64_t key = 0; key < 3; ++key) {
        threads.emplace_back([&, key] {
          for (const std::size_t count : {0, 1, 700, 20}) {
            const Wanted left(scan, draw_ids(key + 10, count, table.layout.num_rows));
            const Wanted kept(scan, draw_ids(key, count, table.layout.num_rows));
            scan.leave(left.request);
            const ScanCounts counts = scan.wait(kept.request);
            check(kept.out == table.rows(kept.ids), "rows brought are those of the table");
            check(counts.reads.bytes_copied == kept.out.size(), "every row was copied once");
            scan.leave(kept.request);
          }
        });
      }
    }
  }
}

void test_rows_go_to_the_places_named() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(300, 60, 60);
  const auto engine = make_engine("threads", 8, nullptr);
  const File file(table.path, FileMode::read, true);
  SharedScan scan(*engine, file, table.layout, {.max_gap_bytes = 0, .staging_bytes = 64 << 10}, pool);
  const std::vector<std::int64_t> ids{7, 299, 7, 0};
  const std::vector<std::int64_t> to_rows{3, 0, 1, 4};
  std::vector<char> out(5 * 60, '?');
  static_cast<void>(scan.wait(scan.join(ids, to_rows, reinterpret_cast<std::byte*>(out.data()))));
  auto expected = table.rows({299, 7, 0, 7, 0});
  std::fill(expected.begin() + 2 * 60, expected.begin() + 3 * 60, '?');
  check(out == expected, "rows go to their places, and nothing else is touched");
  const std::vector<std::int64_t> outside{3, 300};
  check_throws<std::out_of_range>([&] { static_cast<void>(scan.join(outside, {}, nullptr)); }, "no such row");
}

/// Requests that wait together are read by the plan for all of their rows: those ahead of the scan, then the others.
void test_requests_share_the_reads_of_their_union() {
  BufferPool pool(64 << 20);
  const TableOnDisk table(40'000, 100, 128);
  GatedEngine engine(make_engine("threads", 8, nullptr));
  const File file(table.path, FileMode::read, true);
  const ReadOptions options{.max_gap_bytes = 3000, .max_read_bytes = 1 << 16, .staging_bytes = 256 << 10};
  SharedScan scan(engine, file, table.layout, options, pool);
  // This request's first groups are in flight, as many as allowed, when the others join.
  std::vector<std::int64_t> every_50th;
  for (std::int64_t id = 0; id < 40'000; id += 50) every_50th.push_back(id);
  Wanted first(scan, every_50th);
  engine.is_waited_for.wait(false);
  const std::size_t num_before = engine.num_submitted;
  check(num_before < every_50th.size(), "the window is full before all is submitted");
  std::vector<std::unique_ptr<Wanted>> others;
  for (std::uint64_t key = 0; key < 4; ++key)
    others.push_back(std::make_unique<Wanted>(scan, draw_ids(key, 900, 40'000)));
  engine.open();

  const auto alignment = static_cast<std::int64_t>(file.offset_alignment());
  const std::int64_t position = every_50th[num_before - 1] + 1;
  std::set<std::int64_t> ahead(every_50th.begin() + static_cast<std::ptrdiff_t>(num_before), every_50th.end());
  std::set<std::int64_t> behind;
  ReadCounts counts = scan.wait(first.request).reads;
  check(first.out == table.rows(first.ids), "the first has its rows");
  for (const auto& other : others) {
    const ReadCounts more = scan.wait(other->request).reads;
    counts.reads += more.reads;
    counts.bytes_read += more.bytes_read;
    check(other->out == table.rows(other->ids), "each has its rows");
    // Rows of the last block read are behind the scan too.
    const std::int64_t next = (position * 128 + alignment - 1) / alignment * alignment / 128;
    for (const std::int64_t id : other->ids) (id >= next ? ahead : behind).insert(id);
  }
  ReadCounts expected{.reads = num_before, .bytes_read = num_before * file.offset_alignment()};
  for (const auto& ids : {ahead, behind}) {
    const std::vector<std::int64_t> sorted(ids.begin(), ids.end());
    for (const PlannedRead& read : plan_reads(sorted, table.layout, 3000, file.offset_alignment(), 1 << 16)) {
      ++expected.reads;
      expected.bytes_read += read.num_bytes;
    }
  }
  check(counts.reads == expected.reads && counts.bytes_read == expected.bytes_read, "the reads are those of the union");
}

void test_a_failed_read_fails_only_the_requests_that_it_serves() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(3000, 512, 512);
  for (const std::string& name : engine_names()) {
    for (const std::uint64_t nth : {1, 2, 60, 150}) {
      const std::vector<FaultRule> rules{{.kind = FaultKind::io_error, .counted = Counted::reads, .nth = nth}};
      const auto engine = make_engine(name, 16, std::make_shared<FaultInjector>(rules, 0));
      const File file(table.path, FileMode::read, true);
      SharedScan scan(*engine, file, table.layout,
                      {.max_gap_bytes = 0, .max_read_bytes = 4096, .staging_bytes = 32 << 10}, pool);
      std::size_t num_failed = 0;
      for (std::uint64_t key = 0; key < 3; ++key) {
        const Wanted one(scan, draw_ids(key, 400, table.layout.num_rows));
        const Wanted other(scan, draw_ids(key + 9, 400, table.layout.num_rows));
        for (const Wanted* expected : {&one, &other}) {
          try {
            static_cast<void>(scan.wait(expected->request));
            check(expected->out == table.rows(expected->ids), "a request without an error has all rows");
          } catch (const IoError& error) {
            check(error.path() == table.path, "the error names the file");
            ++num_failed;
          }
        }
      }
      check(num_failed == 1 || num_failed == 2, "one read fails one or both of the requests in flight");
    }
  }
}

void test_requests_of_callers_that_gather_begin_together() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(5000, 64, 64);
  GatedEngine engine(make_engine("threads", 4, nullptr));
  engine.open();
  const File file(table.path, FileMode::read, true);
  SharedScan scan(engine, file, table.layout, {.max_gap_bytes = 64, .staging_bytes = 32 << 10}, pool);
  const std::vector<std::int64_t> ids = {3, 4, 2000, 4000};
  const SharedScan::Gathering first_caller(scan);
  std::optional<SharedScan::Gathering> second_caller(std::in_place, scan);
  const Wanted first(scan, ids);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  check(engine.num_submitted == 0, "a request waits until all that gather have one");
  const Wanted second(scan, ids);
  const ReadCounts first_counts = scan.wait(first.request).reads;
  const ReadCounts second_counts = scan.wait(second.request).reads;
  check(first_counts.reads + second_counts.reads == 3, "each read serves both");
  check(first.out == table.rows(ids) && second.out == table.rows(ids), "each has its rows");

  const Wanted alone(scan, ids);
  second_caller.reset();
  static_cast<void>(scan.wait(alone.request));
  check(alone.out == table.rows(ids), "a caller that leaves is not waited for");
}

void test_callers_without_common_reads_do_not_wait_for_each_other() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(5000, 64, 64);
  const auto engine = make_engine("threads", 4, nullptr);
  const File file(table.path, FileMode::read, true);
  SharedScan scan(*engine, file, table.layout, {.max_gap_bytes = 64, .staging_bytes = 32 << 10}, pool);
  const SharedScan::Gathering first_caller(scan);
  const SharedScan::Gathering second_caller(scan);
  const Wanted first(scan, {3, 1000});
  const Wanted second(scan, {2000, 4000});
  static_cast<void>(scan.wait(first.request));
  static_cast<void>(scan.wait(second.request));
  const Wanted next(scan, {5});
  static_cast<void>(scan.wait(next.request));
  check(next.out == table.rows(next.ids), "one of two is half of them");
}

void test_closing_ends_requests_in_flight() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(3000, 512, 512);
  GatedEngine engine(make_engine("threads", 4, nullptr));
  const File file(table.path, FileMode::read, true);
  SharedScan scan(engine, file, table.layout, {.max_gap_bytes = 0, .staging_bytes = 32 << 10}, pool);
  const Wanted expected(scan, draw_ids(1, 400, 3000));
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    engine.open();
  });
  scan.close();
  check_throws<std::runtime_error>([&] { static_cast<void>(scan.wait(expected.request)); }, "the request fails");
  check_throws<std::logic_error>([&] { const Wanted late(scan, {1}); }, "a closed scan accepts no requests");
}

void test_signals_are_left_to_other_threads() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(100, 512, 512);
  GatedEngine engine(make_engine("threads", 4, nullptr));
  engine.open();
  const File file(table.path, FileMode::read, true);
  SharedScan scan(engine, file, table.layout, {.max_gap_bytes = 0, .staging_bytes = 32 << 10}, pool);
  const Wanted expected(scan, {3, 50});
  static_cast<void>(scan.wait(expected.request));
  check(engine.has_signals_blocked, "the main thread takes Ctrl-C");
}

}  // namespace

int main() {
  test_requests_of_several_threads_equal_indexing();
  test_rows_go_to_the_places_named();
  test_requests_share_the_reads_of_their_union();
  test_a_failed_read_fails_only_the_requests_that_it_serves();
  test_requests_of_callers_that_gather_begin_together();
  test_callers_without_common_reads_do_not_wait_for_each_other();
  test_closing_ends_requests_in_flight();
  test_signals_are_left_to_other_threads();
}
