// Rows of tables by id: plans of reads for any layout, and reads from files that may be shorter than it says.
#include "diskhop/rows/rows.hpp"

#include "diskhop/rows/shared_scan.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

void plan(Input& input) {
  std::vector<std::int64_t> ids = input.ids<std::int64_t>(input.below(32), 512);
  if (input.flag()) {
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  const TableLayout layout{
      .num_rows = input.number(600), .row_bytes = input.number(5000), .row_stride = input.number(6000)};
  const auto max_gap_bytes = static_cast<std::int64_t>(input.number(9000));
  const std::uint64_t alignment = input.flag() ? std::uint64_t{1} << input.below(48) : input.number(5000);
  for (const PlannedRead& read : plan_reads(ids, layout, max_gap_bytes, alignment, input.number(1 << 15))) {
    require(read.num_bytes > 0 && read.num_bytes % alignment == 0, "reads are aligned");
    require(read.required_bytes <= read.num_bytes, "no more is required than read");
  }
}

void read(Input& input) {
  const std::uint64_t row_bytes = 1 + input.below(40);
  const TableLayout layout{
      .num_rows = input.number(200), .row_bytes = row_bytes, .row_stride = row_bytes + input.below(9)};
  const ReadOptions options{.max_gap_bytes = static_cast<std::int64_t>(input.number(256)),
                            .max_read_bytes = input.number(8192),
                            .staging_bytes = input.below(1 << 15)};
  const std::vector<std::int64_t> ids = input.ids<std::int64_t>(input.below(48), 200);
  std::vector<std::int64_t> to_rows;
  if (input.flag()) {
    for (std::size_t i = ids.size(); i > 0; --i) to_rows.push_back(static_cast<std::int64_t>(i - 1));
  }
  const std::vector<std::byte> content(input.below(1 << 13), std::byte{7});
  const MemoryFile stored(content);
  const File file(stored.path(), FileMode::read, false);
  std::vector<std::byte> out(ids.size() * row_bytes);
  BufferPool pool(0);
  if (input.flag()) {
    const RowReader reader(engine(), file, layout, options, pool);
    static_cast<void>(reader.read(ids, to_rows, out.data(), Priority::demand));
  } else {
    SharedScan scan(engine(), file, layout, options, pool);
    static_cast<void>(scan.wait(scan.join(ids, to_rows, out.data())));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range, IoError>([&] { input.flag() ? plan(input) : read(input); });
  return 0;
}
