#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/rows/rows.hpp"
#include "rows/read_planner.hpp"
#include "table_on_disk.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::draw_ids;
using diskhop::testing::engine_names;
using diskhop::testing::TableOnDisk;

namespace {

/// Passes everything on and counts tickets that were not waited for.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Ticket submit(std::span<const Op> ops, Priority priority) override {
    const Ticket ticket = engine_->submit(ops, priority);
    most_in_flight = std::max(most_in_flight, ++in_flight);
    return ticket;
  }
  void wait(Ticket ticket) override {
    --in_flight;
    engine_->wait(ticket);
  }
  bool poll(Ticket ticket) override { return engine_->poll(ticket); }
  std::string name() const override { return engine_->name(); }
  unsigned depth() const override { return engine_->depth(); }

  int in_flight = 0;
  int most_in_flight = 0;

 private:
  std::unique_ptr<Engine> engine_;
};

std::vector<char> read(const RowReader& reader, const std::vector<std::int64_t>& ids,
                       const std::vector<std::int64_t>& to_rows = {}) {
  std::vector<char> out(ids.size() * reader.layout().row_bytes, '?');
  reader.read(ids, to_rows, reinterpret_cast<std::byte*>(out.data()), Priority::demand);
  return out;
}

/// Reads the same rows in reverse, each to its place.
std::vector<char> read_reversed(const RowReader& reader, const std::vector<std::int64_t>& ids) {
  std::vector<std::int64_t> to_rows;
  for (std::size_t place = ids.size(); place > 0; --place) to_rows.push_back(static_cast<std::int64_t>(place - 1));
  return read(reader, {ids.rbegin(), ids.rend()}, to_rows);
}

void test_reading_equals_indexing_from_several_threads() {
  BufferPool pool(64 << 20);
  const TableOnDisk table(5000, 60, 64);
  for (const std::string& name : engine_names()) {
    const auto engine = make_engine(name, 32, nullptr);
    for (const bool want_direct : {true, false}) {
      const File file(table.path, FileMode::read, want_direct);
      for (const std::int64_t max_gap_bytes : {-1, 0, 5000}) {
        const RowReader reader(*engine, file, table.layout,
                               {.max_gap_bytes = max_gap_bytes, .max_read_bytes = 8192, .staging_bytes = 64 << 10},
                               pool);
        std::vector<std::jthread> threads;
        for (std::uint64_t key = 0; key < 3; ++key) {
          threads.emplace_back([&, key] {
            for (const std::size_t count : {0, 1, 700}) {
              const auto ids = draw_ids(key, count, table.layout.num_rows);
              check(read(reader, ids) == table.rows(ids), "rows read are those of the table");
              check(read_reversed(reader, ids) == table.rows(ids), "rows go to the places named");
            }
          });
        }
      }
    }
  }
}

void test_errors_leave_nothing_in_flight() {
  BufferPool pool(4 << 20);
  const TableOnDisk table(3000, 512, 512);
  const auto ids = draw_ids(4, 400, table.layout.num_rows);
  for (const std::string& name : engine_names()) {
    for (const std::uint64_t nth : {1, 2, 100, 300}) {
      const std::vector<FaultRule> rules{{.kind = FaultKind::io_error, .counted = Counted::reads, .nth = nth}};
      CountingEngine engine(make_engine(name, 16, std::make_shared<FaultInjector>(rules, 0)));
      const File file(table.path, FileMode::read, true);
      const RowReader reader(engine, file, table.layout,
                             {.max_gap_bytes = -1, .max_read_bytes = 4096, .staging_bytes = 32 << 10}, pool);
      const auto error = check_throws<IoError>([&] { read(reader, ids); }, "a failed read is an error");
      check(error.path() == table.path, "the error names the file");
      check(engine.most_in_flight > 1, "several groups were in flight");
      check(engine.in_flight == 0, "every ticket was waited for");
      check(read(reader, ids) == table.rows(ids), "the reader works after an error");
    }
  }
}

void test_plans_cover_every_row() {
  const TableLayout layout{.num_rows = 1000, .row_bytes = 100, .row_stride = 104};
  const std::vector<std::int64_t> ids{0, 1, 5, 6, 400, 401, 998, 999};
  for (const std::int64_t max_gap_bytes : {-1, 0, 1000, 1 << 20}) {
    for (const std::uint64_t alignment : {1, 512}) {
      std::uint64_t next_wanted = 0;
      for (const PlannedRead& read : plan_reads(ids, layout, max_gap_bytes, alignment, 1 << 20)) {
        check(read.first_wanted == next_wanted, "reads take the expected rows in turn");
        next_wanted += read.num_wanted;
        check(read.offset % alignment == 0 && read.num_bytes % alignment == 0, "reads are aligned");
        check(read.offset + read.required_bytes <= layout.num_rows * layout.row_stride, "no more is required than is");
        for (std::uint64_t expected = read.first_wanted; expected < next_wanted; ++expected) {
          const std::uint64_t begin = static_cast<std::uint64_t>(ids[expected]) * layout.row_stride;
          check(read.offset <= begin && begin + layout.row_bytes <= read.offset + read.required_bytes,
                "a row lies in its read");
        }
      }
      check(next_wanted == ids.size(), "every row is read");
    }
  }
}

void test_plans_do_not_depend_on_the_parts_that_ids_come_in() {
  const TableLayout layout{.num_rows = 5000, .row_bytes = 60, .row_stride = 64};
  auto ids = draw_ids(7, 900, layout.num_rows);
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  for (const std::int64_t max_gap_bytes : {-1, 0, 2000}) {
    const auto whole = plan_reads(ids, layout, max_gap_bytes, 512, 8192);
    for (const std::size_t part : {1, 7, 1000}) {
      ReadPlanner planner(layout, max_gap_bytes, 512, 8192);
      std::vector<PlannedRead> reads;
      for (std::size_t begin = 0; begin < ids.size(); begin += part) {
        planner.add({ids.data() + begin, std::min(part, ids.size() - begin)}, reads);
      }
      planner.finish(reads);
      check(reads == whole, "the reads are those of all ids at once");
    }
  }
}

void test_no_block_is_read_twice_for_one_row() {
  const TableLayout layout{.num_rows = 8, .row_bytes = 700, .row_stride = 700};
  const std::vector<std::int64_t> ids{0, 1, 2};
  const auto reads = plan_reads(ids, {.num_rows = 8, .row_bytes = 100, .row_stride = 100}, 0, 4096, 512);
  check(reads.size() == 1 && reads[0].num_wanted == 3, "rows of one block share its read, however long that may be");
  const auto longer = plan_reads(ids, layout, 0, 512, 600);
  check(longer.size() == 3, "what lies beyond the read is read by itself");
}

void test_copies_stay_in_bounds() {
  const std::uint64_t row_bytes = 700;
  std::vector<std::byte> from(1000 * (row_bytes + 4));
  for (std::size_t byte = 0; byte < from.size(); ++byte) from[byte] = static_cast<std::byte>(byte * 7);
  const RowArray source{.data = from.data(), .num_rows = 1000, .stride = row_bytes + 4};
  const auto rows = draw_ids(1, 3000, 1000);
  for (const unsigned num_threads : {0U, 1U, 3U}) {
    std::vector<std::byte> to(rows.size() * row_bytes);
    copy_rows(source, rows, to.data(), rows.size(), {}, rows.size(), row_bytes, num_threads);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::byte* expected = from.data() + static_cast<std::uint64_t>(rows[row]) * source.stride;
      check(std::equal(expected, expected + row_bytes, to.data() + row * row_bytes), "a row is copied to its place");
    }
  }
  std::vector<std::byte> to(4 * row_bytes);
  for (const std::int64_t bad : {std::int64_t{1000}, std::int64_t{-1}}) {
    const std::vector<std::int64_t> one{bad};
    check_throws<std::out_of_range>([&] { copy_rows(source, one, to.data(), 4, {}, 1, row_bytes, 1); },
                                    "a source row outside is refused");
    check_throws<std::out_of_range>([&] { copy_rows(source, {}, to.data(), 4, one, 1, row_bytes, 1); },
                                    "a destination row outside is refused");
  }
  check_throws<std::out_of_range>([&] { copy_rows(source, {}, to.data(), 4, {}, 5, row_bytes, 1); },
                                  "more rows than fit are refused");
  const std::vector<std::int64_t> twice{1, 0, 1};
  check_throws<std::invalid_argument>([&] { copy_rows(source, {}, to.data(), 4, twice, 3, row_bytes, 2); },
                                      "a destination row named twice is refused");
}

}  // namespace

int main() {
  test_reading_equals_indexing_from_several_threads();
  test_errors_leave_nothing_in_flight();
  test_plans_cover_every_row();
  test_plans_do_not_depend_on_the_parts_that_ids_come_in();
  test_no_block_is_read_twice_for_one_row();
  test_copies_stay_in_bounds();
}
