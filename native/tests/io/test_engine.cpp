// Both engines: every byte is in its place, faults are cured or reported, and nothing stays in flight.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "diskhop/base/owner_process.hpp"
#include "diskhop/io/buffer.hpp"
#include "diskhop/io/engine.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

constexpr std::uint64_t num_known_bytes = (1 << 18) + 777;  // ends inside a block
constexpr std::byte untouched{0xEE};

/// How a file's bytes are requested: aligned or not, direct or buffered.
struct Case {
  std::string engine;
  bool want_direct;
  bool is_aligned;
};

std::vector<Op> reads_of(const File& file, const Buffer& buffer, bool is_aligned, std::uint64_t seed,
                         std::size_t num_ops) {
  std::mt19937_64 random(seed);
  std::vector<Op> ops;
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < num_ops; ++i) {
    const std::uint64_t step = is_aligned ? 4096 : 1;
    const std::uint64_t num_bytes = is_aligned ? step * (1 + random() % 4) : random() % 9000;
    const std::uint64_t offset = random() % ((num_known_bytes - num_bytes) / step) * step;
    ops.push_back({.kind = OperationKind::read,
                   .file = &file,
                   .offset = offset,
                   .buffer = buffer.data() + place,
                   .num_bytes = num_bytes});
    place += 4 * 4096;
  }
  check(place <= buffer.num_bytes(), "the test's buffer holds all its reads");
  return ops;
}

void check_bytes(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    const std::vector<std::byte> expected = known_bytes(op.offset, op.num_bytes);
    check(std::memcmp(op.buffer, expected.data(), op.num_bytes) == 0, "every read brings the file's bytes");
  }
}

void reads_bring_the_bytes(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(4 << 20);
  for (const unsigned depth : {1U, 3U, 64U}) {
    const auto engine = make_engine(test.engine, depth, nullptr);
    check(engine->name() == test.engine && engine->depth() == depth, "an engine says what it is");
    std::memset(buffer.data(), static_cast<int>(untouched), buffer.num_bytes());
    const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, depth, 200);
    const std::span<const Op> all(ops);
    const Ticket later = engine->submit(all.subspan(100), Priority::prefetch);
    const Ticket first = engine->submit(all.first(100), Priority::demand);
    engine->wait(first);
    while (!engine->poll(later)) std::this_thread::yield();
    engine->wait(later);
    check_bytes(ops);
    check_throws<std::invalid_argument>([&] { engine->wait(later); }, "a ticket is spent by waiting");
  }
}

void cured_faults_change_nothing(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(4 << 20);
  const std::vector<std::vector<FaultRule>> cases = {
      {{FaultKind::short_transfer, Counted::reads, 1, false}},
      {{FaultKind::short_transfer, Counted::reads, 5}, {FaultKind::interrupted, Counted::reads, 6}},
      {{FaultKind::again, Counted::reads, 1}, {FaultKind::interrupted, Counted::reads, 2}},
  };
  for (const auto& rules : cases) {
    const auto engine = make_engine(test.engine, 8, injector_with(rules));
    std::memset(buffer.data(), static_cast<int>(untouched), buffer.num_bytes());
    const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, 3, 60);
    engine->wait(engine->submit(ops, Priority::demand));
    check_bytes(ops);
  }
}

/// A fault at the n-th operation, for every n of a small run: one error, and the engine keeps working.
void reported_errors_name_file_and_offset(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(4 << 20);
  const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, 9, 12);
  std::uint64_t num_operations = 0;
  {
    const auto counter = injector_with({});
    const auto engine = make_engine(test.engine, 4, counter);
    engine->wait(engine->submit(ops, Priority::demand));
    num_operations = counter->count(Counted::all);
  }
  check(num_operations >= 11, "every read is an operation");
  for (const FaultKind kind : {FaultKind::io_error, FaultKind::truncated, FaultKind::interrupted, FaultKind::again}) {
    // A fault that a retry cures is reported only if it never ends.
    const bool once = kind == FaultKind::io_error || kind == FaultKind::truncated;
    for (std::uint64_t nth = 1; nth <= num_operations; ++nth) {
      const auto engine = make_engine(test.engine, 4, injector_with({{kind, Counted::all, nth, once}}));
      const Ticket ticket = engine->submit(ops, Priority::demand);
      const auto error = check_throws<IoError>([&] { engine->wait(ticket); }, "the fault is reported");
      check(error.path() == path, "the error names the file");
      bool is_an_ops_offset = false;
      for (const Op& op : ops) is_an_ops_offset = is_an_ops_offset || op.offset == error.offset();
      check(is_an_ops_offset, "the error names the offset");
      const std::string text = error.what();
      check(text.find(" at offset " + std::to_string(error.offset())) != std::string::npos, text);
      check(text.find(kind == FaultKind::truncated ? "the file ends at byte" : ": ") != std::string::npos, text);
      if (!once) continue;
      engine->wait(engine->submit(ops, Priority::demand));  // the fault is over
      check_bytes(ops);
    }
  }
}

void crashes_stop_everything(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(4 << 20);
  const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, 9, 12);
  const auto engine = make_engine(test.engine, 4, injector_with({{FaultKind::crash, Counted::all, 3}}));
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Ticket ticket = engine->submit(ops, Priority::demand);
    check_throws<CrashError>([&] { engine->wait(ticket); }, "a crash is for good");
  }
}

void reads_past_the_end_bring_what_is_required(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(1 << 20);
  const auto engine = make_engine(test.engine, 4, nullptr);
  const std::uint64_t offset = num_known_bytes / 4096 * 4096;
  Op op = {.kind = OperationKind::read, .file = &file, .offset = offset, .buffer = buffer.data(), .num_bytes = 8192};
  op.required_bytes = num_known_bytes - offset;
  engine->wait(engine->submit({&op, 1}, Priority::demand));
  const std::vector<std::byte> expected = known_bytes(offset, op.required_bytes);
  check(std::memcmp(buffer.data(), expected.data(), op.required_bytes) == 0, "the tail is there");
  for (const std::uint64_t required : {op.required_bytes + 1, std::uint64_t{8192}}) {
    op.required_bytes = required;
    const auto error =
        check_throws<IoError>([&] { engine->wait(engine->submit({&op, 1}, Priority::demand)); }, "too short");
    check(error.offset() == num_known_bytes, "the offset is where the file ends");
  }
}

void writes_arrive(const Case& test, const ScratchFolder& folder, std::vector<FaultRule> rules) {
  const std::string path = folder.file("written");
  const File file(path, FileMode::write, test.want_direct);
  const Buffer buffer(1 << 20);
  const std::vector<std::byte> bytes = known_bytes(0, num_known_bytes);
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  const auto engine = make_engine(test.engine, 8, injector_with(std::move(rules)));
  std::vector<Op> ops;
  const std::uint64_t step = test.is_aligned ? 16384 : 5003;
  for (std::uint64_t offset = 0; offset < num_known_bytes; offset += step) {
    ops.push_back({.kind = OperationKind::write,
                   .file = &file,
                   .offset = offset,
                   .buffer = buffer.data() + offset,
                   .num_bytes = std::min(step, num_known_bytes - offset)});
  }
  engine->wait(engine->submit(ops, Priority::demand));
  const Op fsync = {.kind = OperationKind::fsync, .file = &file};
  engine->wait(engine->submit({&fsync, 1}, Priority::demand));
  check(file_bytes(path) == bytes, "the file holds what was written, to the byte");
  std::filesystem::remove(path);
}

void failed_writes_are_reported(const Case& test, const ScratchFolder& folder) {
  const std::string path = folder.file("full");
  const File file(path, FileMode::write, test.want_direct);
  const Buffer buffer(1 << 20);
  std::vector<Op> ops(8);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i] = {
        .kind = OperationKind::write, .file = &file, .offset = i * 4096, .buffer = buffer.data(), .num_bytes = 4096};
  }
  for (std::uint64_t nth = 1; nth <= ops.size(); ++nth) {
    const auto engine = make_engine(test.engine, 4, injector_with({{FaultKind::no_space, Counted::writes, nth}}));
    const auto error = check_throws<IoError>([&] { engine->wait(engine->submit(ops, Priority::demand)); }, "disk full");
    check(error.code().value() == ENOSPC && error.kind() == OperationKind::write, error.what());
  }
  const auto engine = make_engine(test.engine, 4, injector_with({{FaultKind::io_error, Counted::fsyncs, 1}}));
  const Op fsync = {.kind = OperationKind::fsync, .file = &file};
  const auto error = check_throws<IoError>([&] { engine->wait(engine->submit({&fsync, 1}, Priority::demand)); }, "EIO");
  check(std::string(error.what()).starts_with(path + ": fsync failed: "), error.what());
}

void nothing_to_do_is_done_at_once(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const auto engine = make_engine(test.engine, 4, nullptr);
  engine->wait(engine->submit({}, Priority::demand));
  const Op empty = {.kind = OperationKind::read, .file = &file, .offset = num_known_bytes * 2};
  const Ticket ticket = engine->submit({&empty, 1}, Priority::demand);
  check(engine->poll(ticket), "no bytes, no waiting");
  engine->wait(ticket);
}

void an_engine_may_go_with_tickets_open(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(8 << 20);
  const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, 1, 400);
  for (int round = 0; round < 5; ++round) {
    const auto engine = make_engine(test.engine, 4, nullptr);
    static_cast<void>(engine->submit(ops, Priority::demand));
  }
}

/// Several callers, both priorities, waiting and polling, with and without faults.
void many_callers_share_an_engine(const Case& test, const std::string& path, std::vector<FaultRule> rules,
                                  int num_fatal) {
  const File file(path, FileMode::read, test.want_direct);
  const auto engine = make_engine(test.engine, 8, injector_with(std::move(rules)));
  std::atomic<int> num_reported{0};
  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const Buffer buffer(2 << 20);
    for (int round = 0; round < 20; ++round) {
      const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, random(), 1 + random() % 40);
      const Ticket ticket = engine->submit(ops, random() % 2 == 0 ? Priority::demand : Priority::prefetch);
      for (std::uint64_t i = random() % 3; i > 0; --i) static_cast<void>(engine->poll(ticket));
      try {
        engine->wait(ticket);
        check_bytes(ops);
      } catch (const IoError& error) {
        check(error.path() == path, "the error names the file");
        // Relaxed: a count, read after the threads are joined.
        num_reported.fetch_add(1, std::memory_order_relaxed);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 6; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  check(num_reported.load(std::memory_order_relaxed) == num_fatal, "each fault fails one ticket, and only one");
}

void depths_and_names_are_checked() {
  check_throws<std::invalid_argument>([] { static_cast<void>(make_engine("threads", 0, nullptr)); }, "depth 0");
  check_throws<std::invalid_argument>([] { static_cast<void>(make_engine("threads", 5000, nullptr)); }, "depth 5000");
  check_throws<std::invalid_argument>([] { static_cast<void>(make_engine("libaio", 8, nullptr)); }, "another name");
}

/// A child has a copy of the engine without its threads, or shares its ring: calls that wait would not end, or take the
/// parent's completions.
void a_forked_child_is_refused(const Case& test, const std::string& path) {
  const File file(path, FileMode::read, test.want_direct);
  const Buffer buffer(1 << 20);
  auto engine = make_engine(test.engine, 8, nullptr);
  const std::vector<Op> ops = reads_of(file, buffer, test.is_aligned, 3, 8);
  const Ticket ticket = engine->submit(ops, Priority::demand);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    check_throws<ForkedError>([&] { static_cast<void>(engine->submit(ops, Priority::demand)); },
                              "no submit in a child");
    check_throws<ForkedError>([&] { engine->wait(ticket); }, "no wait in a child");
    check_throws<ForkedError>([&] { static_cast<void>(engine->poll(ticket)); }, "no poll in a child");
    engine.reset();
    ::_exit(0);
  }
  int status = 1;
  check(::waitpid(child, &status, 0) == child && status == 0, "a child is refused, and ends");
  engine->wait(ticket);
  check_bytes(ops);
}

}  // namespace

int main() {
  const ScratchFolder folder;
  const std::string path = folder.file("known");
  write_known_file(path, num_known_bytes);
  depths_and_names_are_checked();
  for (const std::string& engine : engine_names()) {
    for (const bool want_direct : {true, false}) {
      for (const bool is_aligned : {true, false}) {
        const Case test = {engine, want_direct, is_aligned};
        reads_bring_the_bytes(test, path);
        cured_faults_change_nothing(test, path);
        reported_errors_name_file_and_offset(test, path);
        crashes_stop_everything(test, path);
        reads_past_the_end_bring_what_is_required(test, path);
        writes_arrive(test, folder, {});
        writes_arrive(test, folder, {{FaultKind::short_transfer, Counted::writes, 1, false}});
        writes_arrive(test, folder,
                      {{FaultKind::again, Counted::all, 1}, {FaultKind::interrupted, Counted::fsyncs, 1}});
        failed_writes_are_reported(test, folder);
        nothing_to_do_is_done_at_once(test, path);
        an_engine_may_go_with_tickets_open(test, path);
        a_forked_child_is_refused(test, path);
        many_callers_share_an_engine(test, path, {}, 0);
        many_callers_share_an_engine(test, path,
                                     {{FaultKind::io_error, Counted::reads, 100},
                                      {FaultKind::truncated, Counted::reads, 1000},
                                      {FaultKind::short_transfer, Counted::reads, 1, false}},
                                     2);
      }
    }
  }
}
