// Local ids: array and table number nodes in order of discovery, batch after batch.
#include <map>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "sampling/local_ids.hpp"

using namespace diskhop;
using diskhop::testing::check;

namespace {

template <typename Word, typename LocalIds>
void nodes_are_numbered_in_order_of_discovery(LocalIds local_ids, Word id_step) {
  constexpr std::uint64_t num_nodes = 5000;
  std::uint64_t counter = 0;
  for (int batch = 0; batch < 6; ++batch) {
    local_ids.next_batch();
    std::vector<Word> node_ids(num_nodes + 1);
    std::map<Word, std::uint64_t> expected;
    for (std::size_t length = 1; length < 4000; length *= 3) {
      std::vector<Word> nodes(length);
      for (Word& node : nodes) node = static_cast<Word>(scale64(draw64(3, counter++), num_nodes)) * id_step;
      local_ids.reserve(local_ids.num_nodes() + length, node_ids.data());
      std::vector<Word> numbers = nodes;
      local_ids.number(numbers, node_ids.data());
      for (std::size_t place = 0; place < length; ++place) {
        expected.try_emplace(nodes[place], expected.size());
        check(numbers[place] == expected[nodes[place]], "a node has the number of its discovery");
      }
      check(local_ids.num_nodes() == expected.size(), "all nodes are numbered");
    }
    for (const auto& [node, number] : expected) check(node_ids[number] == node, "the numbers' nodes are listed");
  }
}

void stamps_start_again_before_they_overflow() {
  Stamps stamps{.base = std::uint32_t{1} << 31, .num_nodes = (std::uint32_t{1} << 31) - 1};
  check(stamps.next_batch() && stamps.base == 1, "what was stamped must be cleared");
  check(!stamps.next_batch(), "an empty batch changes nothing");
  stamps.num_nodes = 9;
  check(!stamps.next_batch() && stamps.base == 10 && stamps.num_nodes == 0, "the base moves past all stamps");
}

}  // namespace

int main() {
  nodes_are_numbered_in_order_of_discovery<std::uint32_t>(NodeArray<std::uint32_t>(5000), 1);
  nodes_are_numbered_in_order_of_discovery<std::uint64_t>(NodeArray<std::uint64_t>(5000), 1);
  nodes_are_numbered_in_order_of_discovery<std::uint32_t>(NodeTable<std::uint32_t>(), 1);
  // Ids that differ only in their upper halves.
  nodes_are_numbered_in_order_of_discovery<std::uint64_t>(NodeTable<std::uint64_t>(), std::uint64_t{1} << 32);
  stamps_start_again_before_they_overflow();
}
