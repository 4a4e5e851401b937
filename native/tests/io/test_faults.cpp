// The fault injector: what it counts, which operations it hits, and that a crash is permanent.
#include <cerrno>

#include "check.hpp"
#include "diskhop/io/faults.hpp"

using diskhop::Counted;
using diskhop::CrashError;
using diskhop::FaultInjector;
using diskhop::FaultKind;
using diskhop::IoError;
using diskhop::OperationKind;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

void once_hits_the_nth_and_no_other() {
  FaultInjector injector({{FaultKind::io_error, Counted::reads, 3}}, 0);
  for (int number = 1; number <= 6; ++number) {
    check(!injector.next(OperationKind::write, 512).faulty, "a write is not a read");
    const auto verdict = injector.next(OperationKind::read, 512);
    check(verdict.faulty == (number == 3), "only the third read fails");
  }
  check(injector.count(Counted::reads) == 6 && injector.count(Counted::all) == 12, "every operation is counted");
}

void a_permanent_fault_hits_all_from_the_nth() {
  FaultInjector injector({{FaultKind::no_space, Counted::changes, 2, false}}, 0);
  check(!injector.next(OperationKind::write, 1).faulty, "the first change goes well");
  check(!injector.next(OperationKind::read, 1).faulty, "a read is no change");
  for (const OperationKind kind : {OperationKind::write, OperationKind::fsync, OperationKind::rename}) {
    check(injector.next(kind, 1).kind == FaultKind::no_space, "every later change fails");
  }
}

void short_transfers_move_something_but_not_all() {
  FaultInjector injector({{FaultKind::short_transfer, Counted::all, 1, false}}, 42);
  for (std::uint64_t num_bytes = 2; num_bytes < 2000; ++num_bytes) {
    const auto verdict = injector.next(OperationKind::read, num_bytes);
    check(verdict.faulty && verdict.num_bytes >= 1 && verdict.num_bytes < num_bytes, "1 to all but one");
  }
  check(!injector.next(OperationKind::read, 1).faulty, "one byte cannot be cut");
  check(!injector.next(OperationKind::fsync, 0).faulty, "an fsync cannot be cut");
}

void the_seed_decides_the_lengths() {
  const std::vector<diskhop::FaultRule> rules = {{FaultKind::short_transfer, Counted::reads, 1, false}};
  FaultInjector first(rules, 5);
  FaultInjector second(rules, 5);
  FaultInjector other(rules, 6);
  bool differs = false;
  for (int i = 0; i < 20; ++i) {
    const auto length = first.next(OperationKind::read, 1 << 20).num_bytes;
    check(length == second.next(OperationKind::read, 1 << 20).num_bytes, "one seed, one sequence");
    differs = differs || length != other.next(OperationKind::read, 1 << 20).num_bytes;
  }
  check(differs, "another seed, another sequence");
}

void a_crash_is_permanent() {
  FaultInjector injector({{FaultKind::crash, Counted::renames, 1}}, 0);
  injector.check(OperationKind::write, "a");
  check_throws<CrashError>([&] { injector.check(OperationKind::rename, "b"); }, "the rename crashes");
  check_throws<CrashError>([&] { injector.check(OperationKind::fsync, "c"); }, "what follows has crashed too");
  check(injector.next(OperationKind::read, 1).kind == FaultKind::crash, "also in an engine");
}

void check_names_the_file_and_ignores_curable_faults() {
  FaultInjector injector({{FaultKind::no_space, Counted::writes, 2}, {FaultKind::interrupted, Counted::writes, 1}}, 0);
  injector.check(OperationKind::write, "some/file");
  const auto error = check_throws<IoError>([&] { injector.check(OperationKind::write, "some/file"); }, "it is full");
  check(error.code().value() == ENOSPC && std::string(error.what()).starts_with("some/file: write failed: "),
        error.what());
}

void rules_count_from_one() {
  check_throws<std::invalid_argument>([] { FaultInjector({{FaultKind::crash, Counted::all, 0}}, 0); },
                                      "0th is refused");
}

}  // namespace

int main() {
  once_hits_the_nth_and_no_other();
  a_permanent_fault_hits_all_from_the_nth();
  short_transfers_move_something_but_not_all();
  the_seed_decides_the_lengths();
  a_crash_is_permanent();
  check_names_the_file_and_ignores_curable_faults();
  rules_count_from_one();
}
