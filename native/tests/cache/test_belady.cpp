// A small trace with known results, and a large one against the rule: every step is the best choice by next use.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/cache/belady.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

using Trace = std::vector<std::vector<std::int64_t>>;

struct Replay {
  std::uint64_t misses = 0;
  std::uint64_t filled = 0;
};

std::vector<std::vector<std::uint32_t>> look_back(NextUses& uses, const Trace& trace) {
  std::vector<std::vector<std::uint32_t>> next_uses(trace.size());
  for (std::size_t batch = trace.size(); batch-- > 0;) {
    next_uses[batch].resize(trace[batch].size());
    uses.look_back(trace[batch], next_uses[batch]);
  }
  return next_uses;
}

Replay replay(const Trace& trace, std::uint64_t num_rows, std::uint64_t capacity) {
  NextUses uses(num_rows, trace.size());
  const auto next_uses = look_back(uses, trace);
  BeladyCache cache(num_rows, capacity);
  Replay result{.filled = cache.begin(uses.first_uses(), trace.size(), true).in_positions.size()};
  for (std::size_t batch = 0; batch < trace.size(); ++batch) {
    result.misses += trace[batch].size() - cache.step(trace[batch], next_uses[batch]).num_hits;
  }
  return result;
}

void the_known_trace() {
  const Trace trace{{0, 1, 2}, {3, 4}, {0, 5}, {1, 3}, {2, 4}, {5, 0}, {6, 1}};
  const std::map<std::uint64_t, std::uint64_t> misses{{2, 9}, {3, 7}, {4, 5}};
  for (const auto& [capacity, expected] : misses) {
    const Replay found = replay(trace, 7, capacity);
    check(found.misses == expected && found.filled == capacity, "the known trace's misses");
  }
}

Trace random_trace(std::uint64_t num_rows, std::size_t num_batches, std::size_t batch_rows, std::uint64_t seed) {
  Trace trace(num_batches);
  std::uint64_t number = 0;
  for (auto& batch : trace) {
    std::set<std::int64_t> rows;
    while (rows.size() < batch_rows) {
      const double draw = static_cast<double>(draw64(seed, number++) >> 11) * 0x1p-53;
      rows.insert(static_cast<std::int64_t>(draw * draw * static_cast<double>(num_rows)));
    }
    batch.assign(rows.begin(), rows.end());
  }
  return trace;
}

void every_step_is_the_best_choice() {
  constexpr std::uint64_t num_rows = 500;
  for (const std::uint64_t capacity : {0, 1, 40, 150, 500}) {
    const Trace trace = random_trace(num_rows, 50, 70, capacity);
    NextUses uses(num_rows, trace.size());
    const auto next_uses = look_back(uses, trace);
    BeladyCache cache(num_rows, capacity);
    std::map<std::int64_t, std::uint32_t> held;  // cached rows and their next use
    for (const std::int64_t row : cache.begin(uses.first_uses(), trace.size(), true).in_positions) {
      held[row] = uses.first_uses()[static_cast<std::size_t>(row)];
    }
    for (std::size_t batch = 0; batch < trace.size(); ++batch) {
      const CacheChanges changes = cache.step(trace[batch], next_uses[batch]);
      std::vector<std::tuple<std::uint32_t, bool, std::int64_t>> candidates;
      std::uint64_t num_hits = 0;
      for (std::size_t i = 0; i < trace[batch].size(); ++i) {
        const bool is_held = held.contains(trace[batch][i]);
        num_hits += is_held;
        if (is_held) held[trace[batch][i]] = next_uses[batch][i];
        if (!is_held) candidates.emplace_back(next_uses[batch][i], true, trace[batch][i]);
      }
      check(changes.num_hits == num_hits, "hits are the rows that were held");
      for (const auto& [row, use] : held) candidates.emplace_back(use, false, row);
      std::erase_if(candidates, [](const auto& candidate) { return std::get<0>(candidate) == never_used; });
      std::sort(candidates.begin(), candidates.end());
      candidates.resize(std::min<std::size_t>(candidates.size(), capacity));
      for (const std::int64_t row : changes.out_rows) check(held.erase(row) == 1, "what goes was held");
      for (const std::int64_t position : changes.in_positions) {
        const auto place = static_cast<std::size_t>(position);
        check(held.emplace(trace[batch][place], next_uses[batch][place]).second, "what comes was not held");
      }
      for (const auto& [use, is_new, row] : candidates) check(held.contains(row), "the soonest used are held");
      const auto num_used =
          std::count_if(held.begin(), held.end(), [](const auto& each) { return each.second != never_used; });
      check(static_cast<std::size_t>(num_used) == candidates.size(), "and of those used again no others");
      check(held.size() == cache.size() && cache.size() <= capacity, "within the capacity");
    }
  }
}

void rejected_input_changes_nothing() {
  NextUses uses(4, 2);
  std::vector<std::uint32_t> next_uses(2);
  check_throws<std::out_of_range>([&] { uses.look_back(std::vector<std::int64_t>{0, 4}, next_uses); }, "row 4 of 4");
  check_throws<std::out_of_range>([&] { uses.look_back(std::vector<std::int64_t>{-1, 0}, next_uses); }, "row -1");
  check(std::all_of(uses.first_uses().begin(), uses.first_uses().end(), [](auto use) { return use == never_used; }),
        "a batch that is refused leaves nothing");
  check_throws<std::invalid_argument>([] { NextUses(1, never_used); }, "too many batches");
}

}  // namespace

int main() {
  the_known_trace();
  every_step_is_the_best_choice();
  rejected_input_changes_nothing();
}
