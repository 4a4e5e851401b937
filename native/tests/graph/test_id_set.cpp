#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/graph/id_set.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

std::vector<std::uint32_t> draw_ids(std::size_t count, std::uint32_t limit, std::uint64_t key) {
  std::vector<std::uint32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = draw32(key, static_cast<std::uint32_t>(i)) % limit;
  return ids;
}

void check_against_std_set(std::size_t count, std::uint32_t limit) {
  const std::vector<std::uint32_t> ids = draw_ids(count, limit, limit);
  const std::set<std::uint32_t> distinct(ids.begin(), ids.end());
  const std::vector<std::uint32_t> sorted(distinct.begin(), distinct.end());
  IdSet set(limit);
  set.add(ids);
  check(set.close() == sorted.size(), "every distinct id is counted once");

  std::vector<std::uint32_t> ranks(ids.size());
  set.rank(ids, ranks);
  for (std::size_t i = 0; i < ids.size(); ++i) check(sorted[ranks[i]] == ids[i], "rank counts the smaller ids");

  std::vector<std::uint32_t> selected(ids.size());
  set.select(ranks, selected);
  check(selected == ids, "select undoes rank, in any order");
  std::vector<std::uint32_t> ascending(sorted.size());
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<std::uint32_t>(i);
  std::vector<std::uint32_t> all(sorted.size());
  set.select(ascending, all);
  check(all == sorted, "select lists the ids in ascending order");
}

void check_ends() {
  const std::uint64_t most = std::uint64_t{1} << 32;
  check_throws<std::invalid_argument>([&] { IdSet set(most + 1); }, "ids are 32 bits wide");
  IdSet set(1'000);
  check_throws<std::out_of_range>([&] { set.add(std::vector<std::uint32_t>{1'000}); }, "ids are below the limit");
  check_throws<std::logic_error>([&] { set.rank({}, {}); }, "a set is asked when it is complete");
  set.add(std::vector<std::uint32_t>{0, 999, 512, 511});
  check(set.close() == 4 && set.close() == 4, "closing twice is closing once");
  check_throws<std::logic_error>([&] { set.add({}); }, "a closed set takes nothing more");
  std::vector<std::uint32_t> found(1);
  check_throws<std::out_of_range>([&] { set.rank(std::vector<std::uint32_t>{5}, found); }, "5 was never added");
  check_throws<std::out_of_range>([&] { set.rank(std::vector<std::uint32_t>{2'000}, found); }, "2000 cannot be there");
  check_throws<std::out_of_range>([&] { set.select(std::vector<std::uint32_t>{4}, found); }, "ranks end at 3");
  set.select(std::vector<std::uint32_t>{3}, found);
  check(found[0] == 999, "the last id is found");
  IdSet empty(0);
  check(empty.close() == 0, "an empty set has no ids");
}

void check_threads() {
  constexpr std::uint32_t kLimit = 5'000;
  const std::vector<std::uint32_t> ids = draw_ids(40'000, kLimit, 7);
  IdSet alone(kLimit);
  alone.add(ids);
  IdSet shared(kLimit);
  std::vector<std::thread> threads;
  const std::size_t part = ids.size() / 4;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { shared.add(std::span(ids).subspan(i * part, part)); });
  }
  for (auto& thread : threads) thread.join();
  check(alone.close() == shared.close(), "threads together collect what one does");
  std::vector<std::uint32_t> ranks(ids.size());
  std::vector<std::uint32_t> expected(ids.size());
  shared.rank(ids, ranks);
  alone.rank(ids, expected);
  check(ranks == expected, "and rank it the same");
}

}  // namespace

int main() {
  for (const std::uint32_t limit : {1U, 2U, 63U, 64U, 65U, 511U, 512U, 513U, 100'000U}) {
    for (const std::size_t count : {0U, 1U, 40U, 3'000U}) check_against_std_set(count, limit);
  }
  check_ends();
  check_threads();
  return 0;
}
