// Feature buffer: a row is valid once its read is complete, whatever its batch still lacks (GNNDrive, section 4.2).
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
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

/// Completes as many groups of reads as complete() allows; later ones wait, or fail.
class HeldEngine final : public Engine {
 public:
  explicit HeldEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  void complete(std::size_t num_groups, bool fails_later = false) {
    const std::scoped_lock lock(mutex_);
    num_allowed_ += num_groups;
    fails_later_ = fails_later;
    changed_.notify_all();
  }
  Ticket submit(std::span<const Op> ops, Priority priority) override { return engine_->submit(ops, priority); }
  void wait(Ticket ticket) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_allowed_ > 0 || fails_later_; });
    engine_->wait(ticket);
    if (num_allowed_ == 0) throw IoError(OperationKind::read, EIO, "table", 0, "held");
    --num_allowed_;
  }
  bool poll(Ticket ticket) override { return engine_->poll(ticket); }
  std::string name() const override { return engine_->name(); }
  unsigned depth() const override { return engine_->depth(); }

 private:
  std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_allowed_ = 0;
  bool fails_later_ = false;
};

/// A batch of 40 rows, two per group of reads, of which others share the first and the last.
struct Sharing {
  Sharing() {
    Ids ids;
    for (std::int64_t id = 0; id < 40; ++id) ids.push_back(id);
    reading = buffer.submit(ids);
    first = buffer.submit(Ids{0});
    last = buffer.submit(Ids{39});
  }
  ~Sharing() {
    for (const BatchTicket& batch : {reading, first, last}) buffer.release(batch);
  }
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  /// Waits for the row that another batch reads; fails the test if it waits for that whole batch.
  void check_arrives(const BatchTicket& batch, const Ids& ids) {
    auto counts = std::async(std::launch::async, [this, batch] { return buffer.wait(batch); });
    check(counts.wait_for(std::chrono::seconds(20)) == std::future_status::ready, "a row is valid once it is read");
    check(counts.get().shared == 1, "it was being read");
    const auto slot = batch->slots()[0] * 60;
    check(std::vector<char>(rows.begin() + slot, rows.begin() + slot + 60) == table.rows(ids), "it is the table's");
  }

  TableOnDisk table{400, 60, 8192};
  BufferPool pool{16 << 20};
  HeldEngine engine{make_engine("threads", 16, nullptr)};
  File file{table.path, FileMode::read, true};
  SharedScan scan{
      engine, file, table.layout, {.max_gap_bytes = 0, .max_read_bytes = 8192, .staging_bytes = 128 << 10}, pool};
  std::vector<char> rows = std::vector<char>(100 * 60, '?');
  FeatureBuffer buffer{scan, reinterpret_cast<std::byte*>(rows.data()), 100, 100};
  BatchTicket reading, first, last;
};

void test_a_row_is_valid_before_its_batch_is_complete() {
  Sharing sharing;
  sharing.engine.complete(1);
  sharing.check_arrives(sharing.first, {0});
  // All later groups are held: the batch that reads it lacks most of its rows.
  const BatchTicket late = sharing.buffer.submit(Ids{0});
  check(sharing.buffer.wait(late).hits == 1, "batches that come now find the row");
  sharing.buffer.release(late);
  sharing.engine.complete(1000);
  sharing.check_arrives(sharing.last, {39});
  check(sharing.buffer.wait(sharing.reading).hits == 0, "it is complete");
}

void test_a_failed_read_leaves_rows_that_had_arrived() {
  Sharing sharing;
  sharing.engine.complete(1, true);
  sharing.check_arrives(sharing.first, {0});
  check_throws<IoError>([&] { sharing.buffer.wait(sharing.last); }, "a row that never arrived fails its batch");
  check_throws<IoError>([&] { sharing.buffer.wait(sharing.reading); }, "and the batch that was to read it");
  check(sharing.buffer.wait(sharing.first).shared == 1, "the others keep what they have");
}

}  // namespace

int main() {
  test_a_row_is_valid_before_its_batch_is_complete();
  test_a_failed_read_leaves_rows_that_had_arrived();
}
