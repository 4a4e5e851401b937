// Hot order: counting by several threads loses nothing, and ranks follow the counts.
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "diskhop/graph/order.hpp"

using diskhop::testing::check;
using diskhop::testing::check_throws;

int main() {
  constexpr std::size_t num_nodes = 1000, num_ids = 40'000, num_threads = 4;
  std::vector<std::uint32_t> ids(num_ids);
  for (std::size_t i = 0; i < num_ids; ++i) ids[i] = i % 3 == 0 ? 7 : static_cast<std::uint32_t>(i * i % num_nodes);
  std::vector<std::uint32_t> expected(num_nodes), counts(num_nodes);
  for (const std::uint32_t id : ids) expected[id] += num_threads;
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < num_threads; ++thread) {
      threads.emplace_back([&] {
        check(diskhop::count_ids<std::uint32_t, std::uint32_t>(ids, counts) == num_ids, "all ids are nodes");
      });
    }
  }
  check(counts == expected, "no occurrence is lost");

  const std::vector<std::uint32_t> order = diskhop::order_by_count<std::uint32_t, std::uint32_t>(counts);
  for (std::size_t i = 1; i < num_nodes; ++i) {
    const bool is_before = counts[order[i - 1]] > counts[order[i]];
    check(is_before || (counts[order[i - 1]] == counts[order[i]] && order[i - 1] < order[i]),
          "most first, ties to the lower id");
  }
  const std::vector<std::uint32_t> new_ids = diskhop::invert_order<std::uint32_t>(order);
  std::vector<std::uint32_t> renumbered(num_nodes);
  check(diskhop::renumber_ids<std::uint32_t, std::uint32_t>(order, new_ids, renumbered) == num_nodes, "all are nodes");
  for (std::uint32_t i = 0; i < num_nodes; ++i) check(renumbered[i] == i, "an order and its inverse cancel");

  const std::vector<std::int64_t> bad = {1, 2, -1, 1000, 3};
  std::vector<std::int64_t> few(5), wide(num_nodes);
  check(diskhop::count_ids<std::int64_t, std::int64_t>(bad, wide) == 2, "the first that is no node is found");
  check(wide[1] + wide[2] + wide[3] == 3, "the others are counted");
  check(diskhop::renumber_ids<std::int64_t, std::int64_t>(bad, wide, few) == 2, "the first that is no node is found");
  check_throws<std::invalid_argument>(
      [] { static_cast<void>(diskhop::invert_order<std::int64_t>(std::vector<std::int64_t>{0, 2, 2})); },
      "an id twice");
}
