#include "diskhop/io/faults.hpp"

#include <cerrno>
#include <utility>

namespace diskhop {
namespace {

bool counts(Counted counted, OperationKind kind) {
  switch (counted) {
    case Counted::reads:
      return kind == OperationKind::read;
    case Counted::writes:
      return kind == OperationKind::write;
    case Counted::fsyncs:
      return kind == OperationKind::fsync;
    case Counted::renames:
      return kind == OperationKind::rename;
    case Counted::changes:
      return kind != OperationKind::read;
    case Counted::all:
      return true;
  }
  return false;
}

bool can_befall(FaultKind fault, OperationKind kind, std::uint64_t num_bytes) {
  const bool is_transfer = kind == OperationKind::read || kind == OperationKind::write;
  switch (fault) {
    case FaultKind::short_transfer:
      return is_transfer && num_bytes > 1;
    case FaultKind::truncated:
      return kind == OperationKind::read;
    case FaultKind::no_space:
      return kind != OperationKind::read;
    case FaultKind::interrupted:
    case FaultKind::again:
      return kind != OperationKind::rename;
    case FaultKind::io_error:
    case FaultKind::crash:
      return true;
  }
  return false;
}

/// Next value of a splitmix64 sequence.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t bits = state += 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

}  // namespace

FaultInjector::FaultInjector(std::vector<FaultRule> rules, std::uint64_t seed)
    : rules_(std::move(rules)), state_(seed) {
  for (const FaultRule& rule : rules_) {
    if (rule.nth == 0) throw std::invalid_argument("a fault rule's nth counts from 1, got 0");
  }
}

FaultInjector::Verdict FaultInjector::next(OperationKind kind, std::uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(kind)];
  if (crashed_) return {true, FaultKind::crash, 0};
  for (const FaultRule& rule : rules_) {
    if (!counts(rule.counted, kind) || !can_befall(rule.kind, kind, num_bytes)) continue;
    const std::uint64_t number = count_locked(rule.counted);
    if (rule.once ? number != rule.nth : number < rule.nth) continue;
    crashed_ = rule.kind == FaultKind::crash;
    const bool is_short = rule.kind == FaultKind::short_transfer;
    return {true, rule.kind, is_short ? 1 + next_random(state_) % (num_bytes - 1) : 0};
  }
  return {};
}

void FaultInjector::check(OperationKind kind, const std::string& path) {
  const Verdict verdict = next(kind, 0);
  if (!verdict.faulty) return;
  const std::string detail = std::string(name_of(kind)) + " failed";
  if (verdict.kind == FaultKind::crash) throw CrashError(path + ": injected crash before " + name_of(kind));
  if (verdict.kind == FaultKind::io_error) throw IoError(kind, EIO, path, 0, detail);
  if (verdict.kind == FaultKind::no_space) throw IoError(kind, ENOSPC, path, 0, detail);
}

std::uint64_t FaultInjector::count(Counted counted) const {
  const std::lock_guard lock(mutex_);
  return count_locked(counted);
}

std::uint64_t FaultInjector::count_locked(Counted counted) const {
  std::uint64_t total = 0;
  for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
    if (counts(counted, static_cast<OperationKind>(kind))) total += counts_[kind];
  }
  return total;
}

}  // namespace diskhop
