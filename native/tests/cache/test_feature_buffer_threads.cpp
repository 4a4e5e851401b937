// Feature buffer under GNNDrive's pipeline: many threads, early exits, and buffers that are reused.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "buffer_bench.hpp"
#include "check.hpp"
#include "diskhop/cache/feature_buffer.hpp"
#include "table_on_disk.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

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
  /// Ends the queue: what it has can still be taken.
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
  BatchTicket batch;
};

/// GNNDrive's pipeline: samplers, extractors, a trainer, a releaser, and the queues between them.
class Drive {
 public:
  Drive(Bench& bench, unsigned num_samplers, unsigned num_extractors, int num_batches, std::size_t rows_per_batch)
      : bench_(bench), num_batches_(num_batches), rows_per_batch_(rows_per_batch) {
    for (unsigned index = 0; index < num_samplers; ++index) threads_.emplace_back([this] { sample(); });
    for (unsigned index = 0; index < num_extractors; ++index) threads_.emplace_back([this] { extract(); });
    threads_.emplace_back([this] { release_used(); });
  }
  ~Drive() { stop(); }
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  /// The trainer: takes and releases this many batches.
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
      for (const BatchTicket& batch : submitted_) bench_.buffer.cancel(batch);
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
      if (!sampled_.put(
              draw_distinct(static_cast<std::uint64_t>(number), rows_per_batch_, bench_.table.layout.num_rows)))
        return;
    }
  }
  void extract() {
    while (auto ids = sampled_.get()) {
      BatchTicket batch;
      {
        const std::scoped_lock lock(mutex_);
        if (is_stopped_) return;
        batch = bench_.buffer.submit(*ids);
        submitted_.insert(batch);
      }
      bool is_complete = true;
      try {
        bench_.buffer.wait(batch);
      } catch (const std::logic_error&) {
        is_complete = false;
      }
      {
        const std::scoped_lock lock(mutex_);
        check(is_complete || is_stopped_, "only cancelled batches fail");
        submitted_.erase(batch);
      }
      if (!is_complete || !trained_.put({*ids, batch})) bench_.buffer.release(batch);
    }
  }
  void release_used() {
    while (auto used = used_.get()) bench_.buffer.release(used->batch);
  }

  Bench& bench_;
  int num_batches_;
  std::size_t rows_per_batch_;
  std::atomic<int> next_ = 0;
  BoundedQueue<Ids> sampled_{6};
  BoundedQueue<Extracted> trained_{4};
  BoundedQueue<Extracted> used_{4};
  std::mutex mutex_;
  std::set<BatchTicket> submitted_;  // submitted and not complete
  bool is_stopped_ = false;
  std::vector<std::jthread> threads_;
};

void test_eight_extractors_and_four_samplers() {
  const TableOnDisk table(2000, 60, 4096);
  for (const std::string& name : engine_names()) {
    {
      // Slots for a few batches only: every batch waits, and rows are evicted all the time.
      Bench bench(table, name, 700);
      Drive drive(bench, 4, 8, 200, 200);
      drive.train(200);
      drive.stop();
      bench.check_totals();
    }
    // Slots for the whole table: each row is read once.
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
    // Buffers are rarely replaced and mostly reused: rows left resident serve the next pass.
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
      const BatchTicket batch = bench.buffer.submit(all);
      bench.buffer.wait(batch);
      bench.buffer.release(batch);
    }
  }
}

}  // namespace

int main() {
  test_eight_extractors_and_four_samplers();
  test_a_thousand_starts_and_early_exits();
}
