// Feature buffer, single batches at a time: hits and misses, failed reads, waiting and cancelling.
#include <chrono>
#include <deque>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "buffer_bench.hpp"
#include "check.hpp"
#include "diskhop/cache/feature_buffer.hpp"
#include "table_on_disk.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

/// Reference buffer with searched lists: the rows of a batch that are missing when all earlier reads are complete.
class ListedBuffer {
 public:
  ListedBuffer(std::size_t num_slots, std::size_t most_standby) : num_slots_(num_slots), most_standby_(most_standby) {}
  std::size_t submit(const Ids& ids) {
    std::size_t num_missing = 0;
    for (const std::int64_t id : ids) {
      standby_.remove(id);
      num_missing += users_[id]++ == 0 && !resident_.contains(id) ? 1 : 0;
      resident_.insert(id);
    }
    while (resident_.size() > num_slots_) forget_oldest();
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
    resident_.erase(standby_.front());
    standby_.pop_front();
  }

  std::size_t num_slots_, most_standby_;
  std::set<std::int64_t> resident_;
  std::list<std::int64_t> standby_;  // the least recently used first
  std::map<std::int64_t, int> users_;
};

void test_rows_and_misses_equal_those_of_searched_lists() {
  const TableOnDisk table(600, 40, 8192);
  for (const std::string& name : engine_names()) {
    for (const std::uint64_t most_standby : {0, 70, 1000}) {
      Bench bench(table, name, 300, most_standby);
      ListedBuffer expected(300, most_standby);
      std::deque<std::pair<Ids, BatchTicket>> used;
      std::size_t num_missing = 0;
      for (std::uint64_t number = 0; number < 60; ++number) {
        if (used.size() == 3) {
          check(bench.seen_by(used.front().second) == table.rows(used.front().first), "rows stay until the release");
          bench.buffer.release(used.front().second);
          expected.release(used.front().first);
          used.pop_front();
        }
        Ids ids = draw_distinct(number, 80, 600);
        BatchTicket batch = bench.buffer.submit(ids);
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
          // The second batch waits for rows of the first.
          const Ids first_ids = draw_distinct(pair, 40, 200);
          const Ids second_ids = draw_distinct(pair + 9, 40, 200);
          const BatchTicket first = bench.buffer.submit(first_ids);
          const BatchTicket second = bench.buffer.submit(second_ids);
          for (const auto& [ids, batch] : {std::pair(&second_ids, second), std::pair(&first_ids, first)}) {
            try {
              bench.buffer.wait(batch);
              check(bench.seen_by(batch) == table.rows(*ids), "a batch without an error has all rows");
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
        // No row of a failed read is valid.
        const Ids all = draw_distinct(99, 100, 200);
        const BatchTicket batch = bench.buffer.submit(all);
        bench.buffer.wait(batch);
        check(bench.seen_by(batch) == table.rows(all), "rows that failed are read again");
        bench.buffer.release(batch);
      }
    }
  }
}

/// Runs wait() on another thread.
std::future<BatchCounts> wait_for(Bench& bench, const BatchTicket& batch) {
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
  const BatchTicket used = bench.buffer.submit(small);
  bench.buffer.wait(used);
  const BatchTicket whole = bench.buffer.submit(large);
  const BatchTicket late = bench.buffer.submit(small);
  auto whole_counts = wait_for(bench, whole);
  auto late_counts = wait_for(bench, late);
  check_waits(whole_counts, "a slot is in use");
  check_waits(late_counts, "a later batch waits behind it, although there are free slots");
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

void test_queued_batches_can_be_cancelled() {
  const TableOnDisk table(400, 60, 512);
  Bench bench(table, "threads", 4);
  const BatchTicket used = bench.buffer.submit(Ids{1, 2, 3});
  const BatchTicket waiting = bench.buffer.submit(Ids{4, 5, 6});
  const BatchTicket next = bench.buffer.submit(Ids{7});
  auto counts = wait_for(bench, waiting);
  check_waits(counts, "there is no room");
  bench.buffer.cancel(waiting);
  check_throws<std::logic_error>([&] { counts.get(); }, "waiting for a cancelled batch fails");
  bench.buffer.wait(next);
  check(bench.seen_by(next) == table.rows({7}), "later batches proceed");
  bench.buffer.cancel(next);  // its rows are claimed
  check(bench.seen_by(next) == table.rows({7}), "nothing happens");
  for (const BatchTicket& batch : {used, waiting, next}) bench.buffer.release(batch);
  bench.check_totals();
}

}  // namespace

int main() {
  test_rows_and_misses_equal_those_of_searched_lists();
  test_each_read_may_fail();
  test_a_large_batch_waits_for_the_whole_buffer();
  test_queued_batches_can_be_cancelled();
}
