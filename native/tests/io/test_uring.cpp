// Failures of io_uring: a submitter that exits, a kernel that refuses submissions. Nothing is lost, no thread hangs.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "diskhop/io/buffer.hpp"
#include "diskhop/io/engine.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

constexpr std::uint64_t num_known_bytes = 8 << 20;
constexpr std::uint64_t read_bytes = 64 << 10;

/// From now on this thread's io_uring_enter fails when it submits. Returns whether that could be set up.
bool refuse_submissions() {
  constexpr auto num_to_submit = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + sizeof(std::uint64_t));
  std::array<sock_filter, 6> rules = {
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 3),
       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, num_to_submit), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENXIO), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program = {rules.size(), rules.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void forget_cached_pages(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  check(descriptor >= 0 && ::fsync(descriptor) == 0, "the test file can be synced");
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

std::vector<Op> whole_file(const File& file, const Buffer& buffer) {
  std::vector<Op> ops;
  for (std::uint64_t offset = 0; offset < num_known_bytes; offset += read_bytes) {
    ops.push_back({.kind = OperationKind::read,
                   .file = &file,
                   .offset = offset,
                   .buffer = buffer.data() + offset,
                   .num_bytes = read_bytes});
  }
  return ops;
}

/// The kernel finishes a buffered read in the submitter's context: after its exit the read fails, and is retried.
void a_submitter_may_exit(const std::string& path) {
  const std::vector<std::byte> expected = known_bytes(0, num_known_bytes);
  for (const unsigned depth : {8U, 64U}) {
    for (int round = 0; round < 5; ++round) {
      forget_cached_pages(path);
      const auto engine = make_engine("uring", depth, nullptr);
      const File file(path, FileMode::read, false);
      const Buffer buffer(num_known_bytes);
      Ticket ticket = 0;
      std::thread([&] { ticket = engine->submit(whole_file(file, buffer), Priority::demand); }).join();
      engine->wait(ticket);
      check(std::memcmp(buffer.data(), expected.data(), num_known_bytes) == 0, "every byte arrives");
    }
  }
}

/// A reaper submits for others, and may exit before their requests complete.
void a_reaper_may_exit(const std::string& path) {
  const std::vector<std::byte> expected = known_bytes(0, num_known_bytes);
  for (int round = 0; round < 5; ++round) {
    forget_cached_pages(path);
    const auto engine = make_engine("uring", 8, nullptr);
    const File file(path, FileMode::read, false);
    const Buffer buffer(num_known_bytes);
    const Buffer small(4096);
    const Op op = {
        .kind = OperationKind::read, .file = &file, .offset = 4096, .buffer = small.data(), .num_bytes = 4096};
    const Ticket first = engine->submit({&op, 1}, Priority::demand);
    const Ticket ticket = engine->submit(whole_file(file, buffer), Priority::demand);
    std::thread([&] { engine->wait(first); }).join();
    engine->wait(ticket);
    check(std::memcmp(buffer.data(), expected.data(), num_known_bytes) == 0, "every byte arrives");
  }
}

/// submit() returns a ticket and wait() reports the error; nothing is written to the caller's memory afterwards.
void wait_reports_a_refused_submission(const std::string& path) {
  const auto engine = make_engine("uring", 8, nullptr);
  const File file(path, FileMode::read, true);
  const Buffer buffer(num_known_bytes);
  bool is_refused = false;
  std::thread([&] {
    is_refused = refuse_submissions();
    if (!is_refused) return;
    const Ticket ticket = engine->submit(whole_file(file, buffer), Priority::demand);
    check(engine->poll(ticket), "what the kernel does not take ends at once");
    const auto error = check_throws<IoError>([&] { engine->wait(ticket); }, "the refusal is reported");
    check(error.code().value() == ENXIO && error.path() == path, error.what());
    check_throws<std::invalid_argument>([&] { engine->wait(ticket); }, "the ticket is spent");
  }).join();
  if (!is_refused) return static_cast<void>(std::puts("refused submissions are not tested: no seccomp here"));
  const Buffer other(4096);
  const Op op = {.kind = OperationKind::read, .file = &file, .buffer = other.data(), .num_bytes = 4096};
  check_throws<IoError>([&] { engine->wait(engine->submit({&op, 1}, Priority::demand)); }, "an engine stays stopped");
  for (std::uint64_t i = 0; i < num_known_bytes; ++i) {
    check(buffer.data()[i] == std::byte{0}, "no request is left that could write");
  }
}

/// A reaper's refill is refused while another thread waits: both get the error, after transfers in flight have ended.
void a_refused_refill_wakes_all_waiters(const std::string& path) {
  for (int round = 0; round < 10; ++round) {
    const auto engine = make_engine("uring", 1, nullptr);
    const File file(path, FileMode::read, true);
    const Buffer buffer(num_known_bytes);
    const Buffer other(4096);
    const Ticket ticket = engine->submit(whole_file(file, buffer), Priority::demand);
    const Op op = {.kind = OperationKind::read, .file = &file, .buffer = other.data(), .num_bytes = 4096};
    const Ticket behind = engine->submit({&op, 1}, Priority::demand);
    const auto wait_for = [&](Ticket awaited) {
      try {
        engine->wait(awaited);
      } catch (const IoError& error) {  // unless the other thread reaped: it may submit
        check(error.code().value() == ENXIO, error.what());
      }
    };
    std::thread reaper([&] {
      if (refuse_submissions()) wait_for(ticket);
    });
    std::thread follower(wait_for, behind);
    reaper.join();
    follower.join();
  }
}

void an_engine_that_takes_no_requests_is_not_chosen() {
  std::thread([] {
    if (!refuse_submissions()) return;
    check(!why_no_uring().empty(), "a ring that can be made and not used is no ring");
    check_throws<std::system_error>([] { static_cast<void>(make_engine("uring", 8, nullptr)); }, "nor an engine");
  }).join();
}

}  // namespace

int main() {
  if (engine_names().size() == 1) return 0;
  const ScratchFolder folder;
  const std::string path = folder.file("known");
  write_known_file(path, num_known_bytes);
  a_submitter_may_exit(path);
  a_reaper_may_exit(path);
  wait_reports_a_refused_submission(path);
  a_refused_refill_wakes_all_waiters(path);
  an_engine_that_takes_no_requests_is_not_chosen();
}
