// A feature buffer over a table on disk, for its tests.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/cache/feature_buffer.hpp"
#include "table_on_disk.hpp"

namespace diskhop::testing {

using Ids = std::vector<std::int64_t>;
using BatchTicket = std::shared_ptr<FeatureBuffer::Batch>;

/// Returns distinct ids in random order.
inline Ids draw_distinct(std::uint64_t key, std::size_t most, std::uint64_t num_rows) {
  Ids ids;
  std::set<std::int64_t> seen;
  for (const std::int64_t id : draw_ids(key, most, num_rows)) {
    if (seen.insert(id).second) ids.push_back(id);
  }
  return ids;
}

/// A buffer over a table, with its engine, pool and scan. No read serves two rows.
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

  [[nodiscard]] std::vector<char> seen_by(const BatchTicket& batch) const {
    std::vector<char> seen;
    for (const std::int64_t slot : batch->slots()) {
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(slot * table.layout.row_bytes);
      seen.insert(seen.end(), row, row + static_cast<std::ptrdiff_t>(table.layout.row_bytes));
    }
    return seen;
  }
  void check_totals() const {
    const BufferTotals totals = buffer.totals();
    check(totals.read == totals.dropped + totals.resident, "no row was read while it was resident or in flight");
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

}  // namespace diskhop::testing
