#include "hops/slot_ring.hpp"

#include <exception>
#include <utility>

#include "base/turns.hpp"

namespace diskhop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::uint64_t total_bytes(std::span<const Op> ops) {
  std::uint64_t num_bytes = 0;
  for (const Op& op : ops) num_bytes += op.num_bytes;
  return num_bytes;
}

}  // namespace

AlignedRead aligned_read(const File& file, std::uint64_t offset, std::uint64_t num_bytes, std::byte* buffer) {
  const std::uint64_t begin = offset / io_alignment * io_alignment;
  const std::uint64_t wanted_bytes = offset + num_bytes - begin;
  return {.op = {.kind = OperationKind::read,
                 .file = &file,
                 .offset = begin,
                 .buffer = buffer,
                 .num_bytes = whole_pages(wanted_bytes),
                 .required_bytes = wanted_bytes},
          .skipped = offset - begin};
}

Transfer::~Transfer() {
  try {
    wait();
  } catch (...) {  // the result is not needed any more
  }
}

void Transfer::begin(Engine& engine, std::span<const Op> ops) {
  if (ops.empty()) return;
  ticket_ = engine.submit(ops, Priority::demand);
  engine_ = &engine;
}

bool Transfer::is_over() const { return engine_ == nullptr || engine_->poll(ticket_); }

void Transfer::wait() {
  if (engine_ != nullptr) std::exchange(engine_, nullptr)->wait(ticket_);
}

SlotRing::SlotRing(Engine& engine, std::uint64_t first_item, std::uint64_t end_item, std::uint64_t num_slots,
                   MakeReads make_reads)
    : engine_(engine),
      end_item_(end_item),
      make_reads_(std::move(make_reads)),
      next_item_(first_item),
      slots_(num_slots) {}

SlotRing::Admission SlotRing::admit(Slot& slot, bool waits) {
  {
    std::unique_lock lock(mutex_);
    if (waits) released_.wait(lock, [&] { return slot.is_released || is_stopped_; });
    if (is_stopped_) return Admission::stopped;
    if (!slot.is_released) return Admission::busy;
  }
  // After its release a slot belongs to the reading thread alone.
  if (!waits && !slot.writing.is_over()) return Admission::busy;
  slot.writing.wait();
  return Admission::free;
}

bool SlotRing::send(std::uint64_t item, std::uint64_t end_waiting) {
  while (next_item_ < end_item_ && next_item_ < item + slots_.size()) {
    Slot& slot = slots_[slot_of(next_item_)];
    const Admission admission = admit(slot, next_item_ < end_waiting);
    if (admission == Admission::stopped) return false;
    if (admission == Admission::busy) break;
    const std::vector<Op> ops = make_reads_(next_item_, slot_of(next_item_));
    slot.reading.begin(engine_, ops);
    slot.is_released = false;
    counts_.bytes_read += total_bytes(ops);
    ++next_item_;
  }
  return true;
}

bool SlotRing::fetch(std::uint64_t item) {
  const Clock::time_point begin = Clock::now();
  if (!send(item, item + 1)) return false;
  slots_[slot_of(item)].reading.wait();
  counts_.seconds_waiting += seconds_since(begin);
  return true;
}

bool SlotRing::is_fetched(std::uint64_t item) {
  return send(item, 0) && item < next_item_ && slots_[slot_of(item)].reading.is_over();
}

void SlotRing::release(std::uint64_t item, std::span<const Op> writes) {
  Slot& slot = slots_[slot_of(item)];
  slot.writing.begin(engine_, writes);
  {
    const std::lock_guard lock(mutex_);
    slot.is_released = true;
    counts_.bytes_written += total_bytes(writes);
  }
  released_.notify_all();
}

void SlotRing::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  released_.notify_all();
}

void SlotRing::finish() {
  const Clock::time_point begin = Clock::now();
  for (Slot& slot : slots_) slot.writing.wait();
  counts_.seconds_waiting += seconds_since(begin);
}

void run_guarded(unsigned num_threads, const std::function<void()>& work, const std::function<void()>& stop) {
  struct Shared {
    const std::function<void()>& work;
    const std::function<void()>& stop;
    std::mutex mutex;
    std::exception_ptr error;
  };
  Shared shared{work, stop, {}, {}};
  const auto run = [](void* data) {
    auto& guarded = *static_cast<Shared*>(data);
    try {
      guarded.work();
    } catch (...) {
      {
        const std::lock_guard lock(guarded.mutex);
        if (!guarded.error) guarded.error = std::current_exception();
      }
      guarded.stop();
    }
  };
  run_in_threads(num_threads, run, &shared);
  if (shared.error) std::rethrow_exception(shared.error);
}

StreamCounts stream_items(const Streaming& streaming, std::uint64_t num_items, std::uint64_t num_slots,
                          const SlotRing::MakeReads& make_reads,
                          const std::function<void(std::uint64_t item, std::uint64_t slot)>& work,
                          const SlotRing::MakeReads& make_writes) {
  SlotRing ring(streaming.engine, 0, num_items, num_slots, make_reads);
  std::mutex mutex;  // its owner fetches
  std::uint64_t next_item = 0;
  run_guarded(
      streaming.num_threads,
      [&] {
        while (true) {
          std::uint64_t item = 0;
          {
            const std::lock_guard lock(mutex);
            if (next_item == num_items || !ring.fetch(next_item)) return;
            item = next_item++;
          }
          work(item, ring.slot_of(item));
          ring.release(item, make_writes(item, ring.slot_of(item)));
        }
      },
      [&] { ring.stop(); });
  ring.finish();
  return ring.counts();
}

}  // namespace diskhop
