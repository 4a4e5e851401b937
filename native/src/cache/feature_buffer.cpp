#include "diskhop/cache/feature_buffer.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "rows/placed_ids.hpp"

namespace diskhop {
namespace {

std::exception_ptr cancelled() {
  return std::make_exception_ptr(std::logic_error("the batch was cancelled before its rows were read"));
}

}  // namespace

FeatureBuffer::FeatureBuffer(SharedScan& scan, std::byte* rows, std::uint64_t num_slots, std::uint64_t most_standby)
    : scan_(scan), rows_(rows), most_standby_(most_standby), num_free_(num_slots) {
  const std::uint64_t num_rows = scan.layout().num_rows;
  if (num_rows >= none || num_slots >= none) {
    throw std::invalid_argument("a feature buffer has less than 2^32 - 1 slots and rows, not " +
                                std::to_string(num_slots) + " and " + std::to_string(num_rows));
  }
  slot_of_.assign(num_rows, none);
  slots_ = std::vector<Slot>(num_slots + 1);
  for (std::uint32_t index = 0; index < num_slots; ++index) slots_[index].next = index + 1;
  if (num_slots > 0) {
    first_free_ = 0;
    slots_[num_slots - 1].next = none;
  }
  head().previous = head().next = static_cast<std::uint32_t>(num_slots);
}

std::shared_ptr<FeatureBuffer::Batch> FeatureBuffer::submit(std::span<const std::int64_t> ids) {
  for (const std::int64_t id : ids) check_id(id, slot_of_.size());
  if (ids.size() > num_slots()) {
    throw std::length_error("a batch of " + std::to_string(ids.size()) + " rows does not fit the " +
                            std::to_string(num_slots()) + " slots of the feature buffer");
  }
  auto batch = std::make_shared<Batch>();
  batch->slots_.assign(ids.begin(), ids.end());
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(batch);
  }
  admit();
  return batch;
}

/// Admits queued batches, in order, while there are slots for them. No lock is resident while reads are started; a
/// thread that calls this meanwhile leaves the work to the first, which checks again.
void FeatureBuffer::admit() noexcept {
  std::unique_lock lock(mutex_);
  if (is_admitting_) return;
  is_admitting_ = true;
  while (!queue_.empty() && has_room_for(*queue_.front())) {
    const std::shared_ptr<Batch> batch = std::move(queue_.front());
    queue_.pop_front();
    Missing missing;
    try {
      missing = claim(batch);
    } catch (...) {  // no memory: reported by wait(), because the batch may not be the caller's
      finish(*batch, std::current_exception());
    }
    lock.unlock();
    if (!missing.rows.empty()) read(batch, missing);
    changed_.notify_all();
    lock.lock();
  }
  is_admitting_ = false;
}

void FeatureBuffer::read(const std::shared_ptr<Batch>& batch, const Missing& missing) noexcept {
  try {
    auto request = scan_.join(missing.rows, missing.to_slots, rows_, this);
    const std::scoped_lock lock(mutex_);
    batch->request_ = std::move(request);
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    finish(*batch, std::current_exception());
  }
}

/// Whether there are slots for all missing rows, not counting standby slots of rows that the batch itself uses.
bool FeatureBuffer::has_room_for(const Batch& batch) const {
  std::uint64_t num_wanted = 0;
  for (const std::int64_t id : batch.slots_) {
    const std::uint32_t index = slot_of_[static_cast<std::size_t>(id)];
    if (index == none || slots_[index].num_users == 0) ++num_wanted;
  }
  return num_wanted <= num_free_ + num_standby_;
}

/// Claims all rows of a batch in one step; returns those that it must read. The mutex is locked, and there are slots.
FeatureBuffer::Missing FeatureBuffer::claim(const std::shared_ptr<Batch>& batch) {
  Missing missing;
  missing.rows.reserve(batch->slots_.size());
  missing.to_slots.reserve(batch->slots_.size());
  batch->others_.reserve(readers_.size());
  const auto place = std::ranges::find(readers_, nullptr);
  if (place - readers_.begin() >= no_reader) throw std::length_error("too many batches are in flight");
  batch->reader_ = static_cast<std::uint16_t>(place - readers_.begin());
  if (place == readers_.end()) readers_.emplace_back();
  // Nothing throws from here on.
  readers_[batch->reader_] = batch;
  batch->is_claimed_ = true;
  // Resident rows come first: their slots must not be taken for missing rows.
  for (std::size_t position = 0; position < batch->slots_.size(); ++position) {
    const auto row = static_cast<std::uint32_t>(batch->slots_[position]);
    const std::uint32_t index = slot_of_[row];
    if (index == none) {
      missing.rows.push_back(row);
      missing.to_slots.push_back(static_cast<std::int64_t>(position));
      continue;
    }
    batch->slots_[position] = index;
    Slot& slot = slots_[index];
    if (slot.num_users++ == 0) take_from_standby(index);
    const std::uint16_t number = slot.reader.load(std::memory_order_acquire);
    if (number == no_reader) {
      ++batch->counts_.hits;
      continue;
    }
    ++batch->counts_.shared;
    const auto& reader = readers_[number];
    if (std::ranges::find(batch->others_, reader) == batch->others_.end()) batch->others_.push_back(reader);
  }
  for (std::size_t number = 0; number < missing.rows.size(); ++number) {
    const auto row = static_cast<std::uint32_t>(missing.rows[number]);
    const std::uint32_t index = take_slot();
    slots_[index].row = row;
    slots_[index].num_users = 1;
    slots_[index].reader.store(batch->reader_, std::memory_order_relaxed);  // the scan sees it when the batch joins
    slot_of_[row] = index;
    batch->slots_[static_cast<std::size_t>(std::exchange(missing.to_slots[number], index))] = index;
  }
  totals_.read += missing.rows.size();
  if (missing.rows.empty()) finish(*batch, nullptr);
  return missing;
}

BatchCounts FeatureBuffer::wait(const std::shared_ptr<Batch>& batch) {
  complete(batch);
  std::vector<std::shared_ptr<Batch>> others;
  {
    const std::scoped_lock lock(mutex_);
    if (batch->error_) std::rethrow_exception(batch->error_);
    others = batch->others_;
  }
  // From the back: where ids ascend, the last row to arrive is mostly there, and the first wait is the only one.
  for (std::size_t left = others.empty() ? 0 : batch->slots_.size(); left > 0; --left) {
    wait_for_row(slots_[static_cast<std::size_t>(batch->slots_[left - 1])]);
  }
  const std::scoped_lock lock(mutex_);
  const auto is_lost = [&](std::int64_t place) { return slots_[static_cast<std::size_t>(place)].row == none; };
  for (const auto& other : others) {
    if (other->error_ && std::ranges::any_of(batch->slots_, is_lost)) std::rethrow_exception(other->error_);
  }
  return batch->counts_;
}

/// The scan has read rows to their slots, for a batch that may lack others.
void FeatureBuffer::arrived(std::span<const std::uint32_t> to_rows) noexcept {
  for (const std::uint32_t index : to_rows) slots_[index].reader.store(no_reader, std::memory_order_release);
}

/// Returns once the row of a slot in use is there, or will never be.
void FeatureBuffer::wait_for_row(const Slot& slot) {
  const auto has_ended = [&] { return slot.reader.load(std::memory_order_acquire) == no_reader; };
  if (has_ended()) return;
  std::shared_ptr<Batch> batch;
  std::shared_ptr<SharedScan::Request> request;
  {
    std::unique_lock lock(mutex_);
    // Loaded once: the row may arrive meanwhile, which this mutex does not keep out.
    const std::uint16_t number = slot.reader.load(std::memory_order_acquire);
    if (number == no_reader) return;
    batch = readers_[number];
    changed_.wait(lock, [&] { return batch->is_finished_ || batch->request_; });
    request = batch->request_;
  }
  if (request) scan_.wait_until(request, has_ended);
  if (!has_ended()) complete(batch);  // its reads have failed
}

/// Returns once a batch's reads have ended. Any thread that needs its rows calls this: the batch's own thread may be
/// late.
void FeatureBuffer::complete(const std::shared_ptr<Batch>& batch) {
  std::shared_ptr<SharedScan::Request> request;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return batch->is_finished_ || batch->request_; });
    if (batch->is_finished_) return;
    request = batch->request_;
  }
  ScanCounts counts;
  std::exception_ptr error;
  try {
    counts = scan_.wait(request);
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::scoped_lock lock(mutex_);
    if (!batch->is_finished_) batch->counts_.scan = counts;
    finish(*batch, std::move(error));
  }
  changed_.notify_all();
}

/// Ends the reads of a batch; if they failed, rows that have not arrived are forgotten. The mutex is locked.
void FeatureBuffer::finish(Batch& batch, std::exception_ptr error) {
  if (batch.is_finished_) return;
  if (batch.is_claimed_) {
    for (std::size_t left = error ? batch.slots_.size() : 0; left > 0; --left) {
      const auto index = static_cast<std::uint32_t>(batch.slots_[left - 1]);
      if (slots_[index].reader.load(std::memory_order_acquire) != batch.reader_) continue;
      forget_row(index);
      slots_[index].reader.store(no_reader, std::memory_order_release);
    }
    readers_[batch.reader_] = nullptr;
  }
  batch.error_ = std::move(error);
  batch.request_ = nullptr;
  batch.is_finished_ = true;
}

void FeatureBuffer::cancel(const std::shared_ptr<Batch>& batch) {
  {
    const std::scoped_lock lock(mutex_);
    const auto place = std::ranges::find(queue_, batch);
    if (place == queue_.end()) return;
    queue_.erase(place);
    finish(*batch, cancelled());
  }
  changed_.notify_all();
  admit();
}

void FeatureBuffer::release(const std::shared_ptr<Batch>& batch) {
  cancel(batch);
  std::shared_ptr<SharedScan::Request> abandoned;
  bool is_needed = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return batch->is_finished_ || batch->request_; });  // it may be being admitted
    if (!batch->is_finished_) {
      const auto reads = [&](std::int64_t place) {
        return slots_[static_cast<std::size_t>(place)].reader.load(std::memory_order_acquire) == batch->reader_;
      };
      is_needed = std::ranges::any_of(batch->slots_, [&](std::int64_t place) {
        return reads(place) && slots_[static_cast<std::size_t>(place)].num_users > 1;
      });
      if (!is_needed) {
        abandoned = batch->request_;
        // From now on these rows cannot be found, and their slots stay the batch's until no read writes there.
        for (const std::int64_t place : batch->slots_) {
          if (reads(place)) forget_row(static_cast<std::uint32_t>(place));
        }
      }
    }
  }
  if (is_needed) complete(batch);
  if (abandoned) scan_.leave(abandoned);
  {
    const std::scoped_lock lock(mutex_);
    finish(*batch, cancelled());
    if (std::exchange(batch->is_claimed_, false)) {
      for (const std::int64_t place : batch->slots_) give_back(static_cast<std::uint32_t>(place));
    }
    batch->others_.clear();
  }
  changed_.notify_all();
  admit();
}

/// Removes one user of a slot. The mutex is locked.
void FeatureBuffer::give_back(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (--slot.num_users > 0) return;
  if (slot.row != none) {
    put_on_standby(index);
    if (num_standby_ <= most_standby_) return;
    index = head().next;
    take_from_standby(index);
    forget_row(index);
  }
  slots_[index].next = first_free_;
  first_free_ = index;
  ++num_free_;
}

/// Takes an unused slot: a free one, or the least recently used one on standby.
std::uint32_t FeatureBuffer::take_slot() {
  if (num_free_ > 0) {
    --num_free_;
    return std::exchange(first_free_, slots_[first_free_].next);
  }
  const std::uint32_t index = head().next;
  take_from_standby(index);
  forget_row(index);
  return index;
}

void FeatureBuffer::forget_row(std::uint32_t index) {
  const std::uint32_t row = std::exchange(slots_[index].row, none);
  if (row == none) return;
  slot_of_[row] = none;
  ++totals_.dropped;
}

void FeatureBuffer::put_on_standby(std::uint32_t index) {
  const std::uint32_t last = head().previous;
  slots_[index].previous = last;
  slots_[index].next = static_cast<std::uint32_t>(num_slots());
  slots_[last].next = index;
  head().previous = index;
  ++num_standby_;
}

void FeatureBuffer::take_from_standby(std::uint32_t index) {
  const Slot& slot = slots_[index];
  slots_[slot.previous].next = slot.next;
  slots_[slot.next].previous = slot.previous;
  --num_standby_;
}

BufferTotals FeatureBuffer::totals() const {
  const std::scoped_lock lock(mutex_);
  BufferTotals totals = totals_;
  totals.resident =
      static_cast<std::uint64_t>(std::ranges::count_if(slot_of_, [](auto index) { return index != none; }));
  return totals;
}

}  // namespace diskhop
