#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/cache/feature_buffer.hpp"
#include "diskhop/rows/append_rows.hpp"
#include "diskhop/rows/rows.hpp"
#include "diskhop/rows/shared_scan.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using SourceRows = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::device::cpu>;
using DestinationRows = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowNumbers = std::optional<InputArray<std::int64_t>>;

OutputArray<std::uint64_t> plan(const InputArray<std::int64_t>& sorted_ids, std::uint64_t num_rows,
                                std::uint64_t row_bytes, std::uint64_t row_stride, std::int64_t max_gap_bytes,
                                std::uint64_t alignment, std::uint64_t max_read_bytes) {
  std::vector<std::uint64_t> table;
  {
    const nb::gil_scoped_release unlocked;
    const TableLayout layout{.num_rows = num_rows, .row_bytes = row_bytes, .row_stride = row_stride};
    const auto reads = plan_reads(as_span(sorted_ids), layout, max_gap_bytes, alignment, max_read_bytes);
    table.reserve(reads.size() * 5);
    for (const PlannedRead& read : reads) {
      table.insert(table.end(), {read.offset, read.num_bytes, read.required_bytes, read.first_wanted, read.num_wanted});
    }
  }
  return as_array(std::move(table), 5);
}

/// Returns the checked destinations: `out` has rows of row_bytes, one per id, or those that to_rows names.
std::span<const std::int64_t> check_places(const InputArray<std::int64_t>& ids, const DestinationRows& out,
                                           const RowNumbers& to_rows, std::uint64_t row_bytes) {
  if (out.shape(1) != row_bytes || (!to_rows && out.shape(0) != ids.size())) {
    throw std::invalid_argument("out must be " + std::to_string(ids.size()) + " rows of " + std::to_string(row_bytes) +
                                " bytes, got " + std::to_string(out.shape(0)) + " of " + std::to_string(out.shape(1)));
  }
  if (!to_rows) return {};
  const auto places = as_span(*to_rows);
  if (places.size() != ids.size()) {
    throw std::invalid_argument("ids and to_rows must have the same length: " + std::to_string(ids.size()) + ", got " +
                                std::to_string(places.size()));
  }
  for (const std::int64_t place : places) {
    if (static_cast<std::uint64_t>(place) >= out.shape(0)) {
      throw std::out_of_range("row " + std::to_string(place) + " is outside the " + std::to_string(out.shape(0)) +
                              " rows of out");
    }
  }
  return places;
}

std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> read_rows(const RowReader& reader,
                                                                  const InputArray<std::int64_t>& ids,
                                                                  const DestinationRows& out,
                                                                  const RowNumbers& to_rows) {
  const auto places = check_places(ids, out, to_rows, reader.layout().row_bytes);
  const nb::gil_scoped_release unlocked;
  const ReadCounts counts =
      reader.read(as_span(ids), places, reinterpret_cast<std::byte*>(out.data()), Priority::demand);
  return {counts.reads, counts.bytes_read, counts.bytes_copied};
}

/// A request of a scan, which is cancelled when the last reference goes.
class ScanTicket {
 public:
  explicit ScanTicket(SharedScan& scan) : scan_(scan) {}
  ~ScanTicket() {
    if (request_) leave();
  }
  ScanTicket(const ScanTicket&) = delete;
  ScanTicket& operator=(const ScanTicket&) = delete;

  void join(std::span<const std::int64_t> ids, std::span<const std::int64_t> to_rows, std::byte* out) {
    const nb::gil_scoped_release unlocked;
    request_ = scan_.join(ids, to_rows, out);
  }
  [[nodiscard]] std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, double> wait() const {
    const nb::gil_scoped_release unlocked;
    const ScanCounts counts = scan_.wait(request_);
    return {counts.reads.reads, counts.reads.bytes_read, counts.reads.bytes_copied, counts.seconds};
  }
  void leave() const {
    const nb::gil_scoped_release unlocked;
    scan_.leave(request_);
  }

 private:
  SharedScan& scan_;
  std::shared_ptr<SharedScan::Request> request_;
};

std::unique_ptr<ScanTicket> join_scan(SharedScan& scan, const InputArray<std::int64_t>& ids, const DestinationRows& out,
                                      const RowNumbers& to_rows) {
  const auto places = check_places(ids, out, to_rows, scan.layout().row_bytes);
  auto ticket = std::make_unique<ScanTicket>(scan);
  ticket->join(as_span(ids), places, reinterpret_cast<std::byte*>(out.data()));
  return ticket;
}

/// A batch's slots in a feature buffer, which are released when the last reference goes.
class BufferTicket {
 public:
  BufferTicket(FeatureBuffer& buffer, std::shared_ptr<FeatureBuffer::Batch> batch)
      : buffer_(buffer), batch_(std::move(batch)) {}
  ~BufferTicket() { release(); }
  BufferTicket(const BufferTicket&) = delete;
  BufferTicket& operator=(const BufferTicket&) = delete;

  [[nodiscard]] std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, double> wait() {
    const nb::gil_scoped_release unlocked;
    counts_ = buffer_.wait(batch_);
    const ScanCounts& scan = counts_.scan;
    return {scan.reads.reads, scan.reads.bytes_read, scan.reads.bytes_copied, scan.seconds};
  }
  void cancel() {
    const nb::gil_scoped_release unlocked;
    buffer_.cancel(batch_);
  }
  void release() {
    const nb::gil_scoped_release unlocked;
    if (!is_released_.exchange(true)) buffer_.release(batch_);
  }
  [[nodiscard]] const std::vector<std::int64_t>& slots() const { return batch_->slots(); }
  [[nodiscard]] const BatchCounts& counts() const { return counts_; }

 private:
  FeatureBuffer& buffer_;
  std::shared_ptr<FeatureBuffer::Batch> batch_;
  BatchCounts counts_;
  std::atomic<bool> is_released_ = false;
};

void open_feature_buffer(FeatureBuffer* self, SharedScan& scan, const DestinationRows& rows,
                         std::uint64_t most_standby) {
  if (rows.shape(1) != scan.layout().row_bytes) {
    throw std::invalid_argument("rows must be of " + std::to_string(scan.layout().row_bytes) + " bytes, got " +
                                std::to_string(rows.shape(1)));
  }
  const nb::gil_scoped_release unlocked;
  new (self) FeatureBuffer(scan, reinterpret_cast<std::byte*>(rows.data()), rows.shape(0), most_standby);
}

std::unique_ptr<BufferTicket> submit_batch(FeatureBuffer& buffer, const InputArray<std::int64_t>& ids) {
  const nb::gil_scoped_release unlocked;
  return std::make_unique<BufferTicket>(buffer, buffer.submit(as_span(ids)));
}

/// Makes a view that keeps its ticket alive.
nb::ndarray<nb::numpy, const std::int64_t, nb::c_contig> slots_of(nb::handle_t<BufferTicket> self) {
  const auto& slots = nb::cast<BufferTicket&>(self).slots();
  return {slots.data(), {slots.size()}, self};
}

/// Opens a RowReader or a SharedScan: both take the same arguments.
template <typename Reader>
void open_reader(Reader* self, Engine& engine, const File& file, std::uint64_t num_rows, std::uint64_t row_bytes,
                 std::uint64_t row_stride, std::int64_t max_gap_bytes, std::uint64_t max_read_bytes,
                 std::uint64_t staging_bytes, BufferPool& pool) {
  new (self)
      Reader(engine, file, {.num_rows = num_rows, .row_bytes = row_bytes, .row_stride = row_stride},
             {.max_gap_bytes = max_gap_bytes, .max_read_bytes = max_read_bytes, .staging_bytes = staging_bytes}, pool);
}

/// Whether the byte ranges of both arrays overlap.
bool overlap(const SourceRows& source, const DestinationRows& out) {
  if (source.size() == 0 || out.size() == 0) return false;
  const auto stride = static_cast<std::size_t>(source.stride(0));
  const std::less<const std::uint8_t*> before;
  return before(source.data(), out.data() + out.size()) &&
         before(out.data(), source.data() + (source.shape(0) - 1) * stride + source.shape(1));
}

/// Returns rows whose bytes are contiguous and which ascend in memory. Throws std::invalid_argument for others.
RowArray as_rows(const SourceRows& source) {
  if (source.size() > 0 && ((source.shape(1) > 1 && source.stride(1) != 1) || source.stride(0) < 0)) {
    throw std::invalid_argument("the bytes of a source row must be contiguous and its rows ascend in memory");
  }
  return {.data = reinterpret_cast<const std::byte*>(source.data()),
          .num_rows = source.shape(0),
          .stride = static_cast<std::uint64_t>(source.stride(0))};
}

std::uint64_t copy(const SourceRows& source, const RowNumbers& from_rows, const DestinationRows& out,
                   const RowNumbers& to_rows, unsigned num_threads) {
  const std::uint64_t row_bytes = out.shape(1);
  if (source.shape(1) != row_bytes) {
    throw std::invalid_argument("rows must be equally wide: source has " + std::to_string(source.shape(1)) +
                                " bytes, out " + std::to_string(row_bytes));
  }
  const RowArray from = as_rows(source);
  if (from_rows && to_rows && from_rows->size() != to_rows->size()) {
    throw std::invalid_argument("from_rows and to_rows must be equally long, got " + std::to_string(from_rows->size()) +
                                " and " + std::to_string(to_rows->size()));
  }
  if (overlap(source, out)) throw std::invalid_argument("source and out overlap: copy into other memory");
  const std::uint64_t count = from_rows ? from_rows->size() : to_rows ? to_rows->size() : source.shape(0);
  if (count == 0) return 0;
  const nb::gil_scoped_release unlocked;
  return copy_rows(from, from_rows ? as_span(*from_rows) : std::span<const std::int64_t>{},
                   reinterpret_cast<std::byte*>(out.data()), out.shape(0),
                   to_rows ? as_span(*to_rows) : std::span<const std::int64_t>{}, count, row_bytes, num_threads);
}

void append(const SourceRows& source, const InputArray<std::uint32_t>& ids, std::uint64_t first_id,
            const InputArray<std::int64_t>& begins, const InputArray<std::int64_t>& counts,
            const InputArray<std::int64_t>& places, const DestinationRows& rests,
            const InOutArray<std::int64_t>& rest_bytes, const InOutArray<std::uint8_t>& out, unsigned num_threads) {
  const RowArray from = as_rows(source);
  const nb::gil_scoped_release unlocked;
  append_rows(from, source.shape(1), first_id,
              {.ids = as_span(ids),
               .begins = as_span(begins),
               .counts = as_span(counts),
               .places = as_span(places),
               .rests = std::as_writable_bytes(std::span(rests.data(), rests.size())),
               .rest_bytes = as_span(rest_bytes),
               .block_bytes = rests.shape(1)},
              std::as_writable_bytes(as_span(out)), num_threads);
}

}  // namespace

void bind_rows(nb::module_& module) {
  using namespace nb::literals;
  module.def("plan_reads", &plan, "sorted_ids"_a.noconvert(), "num_rows"_a, "row_bytes"_a, "row_stride"_a,
             "max_gap_bytes"_a, "alignment"_a, "max_read_bytes"_a,
             "Return (reads, 5): offset, num_bytes, required_bytes, first_wanted, num_wanted.");
  nb::class_<RowReader>(module, "RowReader", "Reads rows of one table; see rows.hpp.")
      .def("__init__", &open_reader<RowReader>, "engine"_a, "file"_a, "num_rows"_a, "row_bytes"_a, "row_stride"_a,
           "max_gap_bytes"_a, "max_read_bytes"_a, "staging_bytes"_a, "pool"_a, nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>(), nb::keep_alive<1, 10>())
      .def("read", &read_rows, "ids"_a.noconvert(), "out"_a.noconvert(), "to_rows"_a.noconvert().none() = nb::none(),
           "Read rows (len(ids), row_bytes) to out[to_rows]; None: 0, 1, 2 ... Returns (reads, bytes_read, "
           "bytes_copied).");
  nb::class_<ScanTicket>(module, "ScanTicket", "Rows in flight; see shared_scan.hpp.")
      .def("wait", &ScanTicket::wait, "Wait for all rows; returns (reads, bytes_read, bytes_copied, seconds).")
      .def("leave", &ScanTicket::leave, "Cancel the request; returns once its output is no longer written.");
  nb::class_<SharedScan>(module, "SharedScan", "Rows for several batches at once; see shared_scan.hpp.",
                         nb::is_weak_referenceable())
      .def("__init__", &open_reader<SharedScan>, "engine"_a, "file"_a, "num_rows"_a, "row_bytes"_a, "row_stride"_a,
           "max_gap_bytes"_a, "max_read_bytes"_a, "staging_bytes"_a, "pool"_a, nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>(), nb::keep_alive<1, 10>())
      .def("join", &join_scan, "ids"_a.noconvert(), "out"_a.noconvert(), "to_rows"_a.noconvert().none() = nb::none(),
           nb::keep_alive<0, 1>(), nb::keep_alive<0, 3>(),
           "Request rows (len(ids), row_bytes) at out[to_rows]; None: 0, 1, 2 ...")
      .def("close", &SharedScan::close, nb::call_guard<nb::gil_scoped_release>(),
           "End the scan; requests in flight fail.");
  nb::class_<BufferTicket>(module, "BufferTicket", "Rows of a batch in a FeatureBuffer, or in flight to it.")
      .def("wait", &BufferTicket::wait, "Wait for all rows; returns (reads, bytes_read, bytes_copied, seconds).")
      .def("cancel", &BufferTicket::cancel, "Leave the queue, if still waiting for slots: wait() then fails.")
      .def("release", &BufferTicket::release, "Release the rows; repeated calls do nothing.")
      .def_prop_ro("slots", &slots_of, "Slots of the rows, int64, in the order of the ids.")
      .def_prop_ro(
          "num_hits", [](const BufferTicket& self) { return self.counts().hits; },
          "Rows that were resident; valid after wait().")
      .def_prop_ro(
          "num_shared", [](const BufferTicket& self) { return self.counts().shared; },
          "Rows that another batch was reading; valid after wait().");
  nb::class_<FeatureBuffer>(module, "FeatureBuffer",
                            "Rows of several batches, each stored once; see feature_buffer.hpp.",
                            nb::is_weak_referenceable())
      .def("__init__", &open_feature_buffer, "scan"_a, "rows"_a.noconvert(), "most_standby"_a, nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>())
      .def("submit", &submit_batch, "ids"_a.noconvert(), nb::keep_alive<0, 1>(),
           "Queue a batch for slots, and then begin to read its missing rows.")
      .def_prop_ro(
          "totals",
          [](const FeatureBuffer& self) {
            const BufferTotals totals = self.totals();
            return std::tuple{totals.read, totals.dropped, totals.resident};
          },
          "Row counts (read, dropped, resident).");
  module.def("copy_rows", &copy, "source"_a.noconvert(), "from_rows"_a.noconvert().none(), "out"_a.noconvert(),
             "to_rows"_a.noconvert().none(), "num_threads"_a = 1,
             "Copy source[from_rows] to out[to_rows]; None: 0, 1, 2 ... Returns the bytes copied.");
  module.def("append_rows", &append, "source"_a.noconvert(), "ids"_a.noconvert(), "first_id"_a, "begins"_a.noconvert(),
             "counts"_a.noconvert(), "places"_a.noconvert(), "rests"_a.noconvert(), "rest_bytes"_a.noconvert(),
             "out"_a.noconvert(), "num_threads"_a = 1, "Append rows to streams; see append_rows.hpp.");
}

}  // namespace diskhop
