// Order of transfers: demand before prefetch, begun requests before new ones, nothing of a failed ticket.
#include <algorithm>
#include <cerrno>
#include <limits>

#include "diskhop/io/buffer.hpp"
#include "io/schedule.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

std::vector<Op> reads_at(const File& file, std::initializer_list<std::uint64_t> offsets) {
  static std::byte buffer[4096];  // never read into: no transfer is executed here
  std::vector<Op> ops;
  for (const std::uint64_t offset : offsets) {
    ops.push_back({.kind = OperationKind::read, .file = &file, .offset = offset, .buffer = buffer, .num_bytes = 1000});
  }
  return ops;
}

Transfer expect(Schedule& schedule, std::uint64_t offset, const std::string& claim) {
  const auto transfer = schedule.next();
  check(transfer.has_value() && transfer->offset == offset, claim);
  return *transfer;
}

void demand_comes_first(const File& file) {
  Schedule schedule(nullptr);
  const Ticket later = schedule.add(reads_at(file, {1, 2}), Priority::prefetch);
  const Transfer begun = expect(schedule, 1, "with nothing else queued a prefetch begins");
  const Ticket now = schedule.add(reads_at(file, {3, 4}), Priority::demand);
  const Transfer third = expect(schedule, 3, "demand overtakes");
  const Transfer fourth = expect(schedule, 4, "all of it");
  const Transfer second = expect(schedule, 2, "then prefetch goes on");
  check(!schedule.next().has_value(), "nothing is left");
  schedule.finish(*third.request, 1000);
  schedule.finish(*fourth.request, 1000);
  check(schedule.num_unfinished(now) == 0 && schedule.num_unfinished(later) == 2, "tickets end on their own");
  schedule.finish(*begun.request, 1000);
  schedule.finish(*second.request, 1000);
  check(schedule.num_ended_batches() == 2, "both have ended");
  check(!schedule.take(now) && !schedule.take(later), "without an error");
}

void begun_requests_resume_first(const File& file) {
  Schedule schedule(nullptr);
  const Ticket ticket = schedule.add(reads_at(file, {0, 5000}), Priority::demand);
  Transfer transfer = expect(schedule, 0, "the first begins");
  schedule.finish(*transfer.request, 300);
  transfer = expect(schedule, 300, "a short transfer resumes where it stopped");
  check(transfer.num_bytes == 700, "with what is left");
  schedule.finish(*transfer.request, -EINTR);
  transfer = expect(schedule, 300, "an interrupted one is tried again");
  schedule.finish(*transfer.request, 700);
  schedule.finish(*expect(schedule, 5000, "then the next").request, 1000);
  check(schedule.num_unfinished(ticket) == 0, "all is done");
}

void nothing_of_a_failed_ticket_begins(const File& file) {
  Schedule schedule(nullptr);
  const Ticket failed = schedule.add(reads_at(file, {0, 1000, 2000, 3000}), Priority::demand);
  const Ticket other = schedule.add(reads_at(file, {9000}), Priority::demand);
  const Transfer first = expect(schedule, 0, "the first begins");
  const Transfer second = expect(schedule, 1000, "the second too");
  schedule.finish(*first.request, -EIO);
  expect(schedule, 9000, "what was queued of the failed ticket is passed over");
  check(schedule.num_unfinished(failed) == 1, "it has not ended while one is in flight");
  schedule.finish(*second.request, -ENOSPC);
  check(schedule.num_unfinished(failed) == 0 && schedule.num_unfinished(other) == 1, "now it has");
  const auto error = check_throws<IoError>([&] { std::rethrow_exception(schedule.take(failed)); }, "the error is kept");
  check(error.code().value() == EIO && error.offset() == 0, "the first error is reported");
}

void retries_without_progress_end(const File& file) {
  Schedule schedule(nullptr);
  const Ticket ticket = schedule.add(reads_at(file, {0}), Priority::demand);
  for (unsigned tries = 0; tries < 5 * max_tries; ++tries) {
    const Transfer transfer = *schedule.next();
    // A byte of progress now and then: the count of tries starts again.
    schedule.finish(*transfer.request, tries % (max_tries - 1) == 0 ? 1 : -EAGAIN);
  }
  check(schedule.num_unfinished(ticket) == 1, "progress makes patient");
  for (unsigned tries = 0; tries < max_tries; ++tries) {
    if (const auto transfer = schedule.next()) schedule.finish(*transfer->request, -EAGAIN);
  }
  check(schedule.num_unfinished(ticket) == 0, "no progress ends it");
  const auto error = check_throws<IoError>([&] { std::rethrow_exception(schedule.take(ticket)); }, "with an error");
  check(error.code().value() == EAGAIN, error.what());
}

/// The rest of a block after a direct transfer must not go through the page cache: both would have the page.
void direct_transfers_resume_at_a_block(const File& file) {
  if (!file.direct()) return;
  const Buffer buffer(1 << 16);
  const std::uint64_t block_bytes = std::max(file.offset_alignment(), file.memory_alignment());
  for (const OperationKind kind : {OperationKind::read, OperationKind::write}) {
    Schedule schedule(nullptr);
    const Op op = {.kind = kind, .file = &file, .offset = 0, .buffer = buffer.data(), .num_bytes = 4 * block_bytes};
    const Ticket ticket = schedule.add({&op, 1}, Priority::demand);
    Transfer transfer = expect(schedule, 0, "it begins");
    const int direct = transfer.descriptor;
    schedule.finish(*transfer.request, static_cast<std::int64_t>(block_bytes) + 100);
    for (int round = 0; round < 2; ++round) {
      transfer = expect(schedule, block_bytes, "the block that was left half is carried out again");
      check(transfer.descriptor == direct && transfer.num_bytes == 3 * block_bytes, "direct as before");
      schedule.finish(*transfer.request, round == 0 ? 50 : static_cast<std::int64_t>(block_bytes) + 7);
    }
    transfer = expect(schedule, 2 * block_bytes, "and the next, which got further");
    schedule.finish(*transfer.request, 7);
    check(schedule.num_unfinished(ticket) == 0, "two that end at one place have found the end");
    const auto error = check_throws<IoError>([&] { std::rethrow_exception(schedule.take(ticket)); }, "it is reported");
    check(error.offset() == 2 * block_bytes + 7, "with the place");
  }
}

/// io_uring reports this when the thread that submitted a request exits.
void requests_that_lost_their_submitter_are_tried_again(const File& file) {
  Schedule schedule(nullptr);
  const Ticket ticket = schedule.add(reads_at(file, {0}), Priority::demand);
  for (const int error_number : {EFAULT, ECANCELED}) schedule.finish(*schedule.next()->request, -error_number);
  schedule.finish(*expect(schedule, 0, "again").request, 1000);
  check(!schedule.take(ticket), "and then it succeeds");
  const Ticket lost = schedule.add(reads_at(file, {0}), Priority::demand);
  for (unsigned tries = 0; tries < max_tries; ++tries) schedule.finish(*schedule.next()->request, -EFAULT);
  const auto error = check_throws<IoError>([&] { std::rethrow_exception(schedule.take(lost)); }, "but not for ever");
  check(error.code().value() == EFAULT, error.what());
}

void invalid_ops_are_refused_and_change_nothing(const File& file) {
  Schedule schedule(nullptr);
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  std::vector<Op> ops = reads_at(file, {0, 0});
  for (const std::uint64_t offset : {most - 999, most, most + 1, ~std::uint64_t{0}}) {
    ops[1].offset = offset;
    check_throws<std::invalid_argument>([&] { schedule.add(ops, Priority::demand); }, "past the end of any file");
  }
  ops[1].offset = 0;
  ops[1].num_bytes = most + 1;
  check_throws<std::invalid_argument>([&] { schedule.add(ops, Priority::demand); }, "longer than any file");
  ops[1].num_bytes = 1000;
  ops[1].required_bytes = 0;
  check_throws<std::invalid_argument>([&] { schedule.add(ops, Priority::demand); }, "a read of nothing in particular");
  ops[1] = {.kind = OperationKind::rename, .file = &file};
  check_throws<std::invalid_argument>([&] { schedule.add(ops, Priority::demand); }, "a rename");
  check(schedule.num_queued() == 0 && !schedule.next(), "the op before is not queued either");
  check(schedule.add(reads_at(file, {most - 1000}), Priority::demand) == 1,
        "no ticket was given; the last byte is fine");
}

void a_stopped_schedule_fails_everything(const File& file) {
  Schedule schedule(nullptr);
  const Ticket begun = schedule.add(reads_at(file, {0, 1000}), Priority::demand);
  const Ticket queued = schedule.add(reads_at(file, {2000}), Priority::prefetch);
  const Transfer transfer = expect(schedule, 0, "one begins");
  schedule.stop(ENXIO);
  check(schedule.num_unfinished(queued) == 0, "what is queued has ended");
  check(schedule.num_unfinished(begun) == 1, "what is in flight has not");
  schedule.finish(*transfer.request, 300);
  const Ticket later = schedule.add(reads_at(file, {3000}), Priority::demand);
  check(!schedule.next(), "nothing begins any more");
  for (const Ticket ticket : {begun, queued, later}) {
    check(schedule.num_unfinished(ticket) == 0, "all has ended");
    const auto error = check_throws<IoError>([&] { std::rethrow_exception(schedule.take(ticket)); }, "with an error");
    check(error.code().value() == ENXIO && std::string(error.what()).starts_with(file.path()), error.what());
  }
}

}  // namespace

int main() {
  const ScratchFolder folder;
  write_known_file(folder.file("known"), 10000);
  const File file(folder.file("known"), FileMode::read, true);
  demand_comes_first(file);
  begun_requests_resume_first(file);
  nothing_of_a_failed_ticket_begins(file);
  retries_without_progress_end(file);
  direct_transfers_resume_at_a_block(file);
  requests_that_lost_their_submitter_are_tried_again(file);
  invalid_ops_are_refused_and_change_nothing(file);
  a_stopped_schedule_fails_everything(file);
}
