// Draws: the vector path equals the portable one, for any list.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "sampling/draws.hpp"

using namespace diskhop;
using diskhop::testing::check;

namespace {

template <typename Word>
void check_list(const NeighborList<Word>& list, std::uint64_t fanout, std::uint64_t hop_key) {
  std::vector<Word> expected(max_draw_overrun, 0);
  std::vector<Word> actual(2 * max_draw_overrun, 0);
  draw_list_portable(list, fanout, hop_key, expected.data());
  draw_list_vector(list, fanout, hop_key, actual.data());
  for (std::uint64_t number = 0; number < std::min<std::uint64_t>(fanout, list.degree); ++number) {
    check(actual[number] == expected[number], "draw " + std::to_string(number) + " of " + std::to_string(fanout) +
                                                  " from " + std::to_string(list.degree) + " is the same");
  }
}

/// Every fan-out with every short list, where nearly all draws repeat, and with lists around the limits.
template <typename Word>
void vector_draws_are_the_portable_ones(Word list_begin) {
  std::vector<std::uint64_t> degrees;
  for (std::uint64_t degree = 0; degree < 70; ++degree) degrees.push_back(degree);
  for (const std::uint64_t degree : {100, 1000, 32'767, 32'768, 65'534, 65'535, 65'536, 65'537, 1'000'000}) {
    degrees.push_back(degree);
  }
  std::uint64_t counter = 0;
  for (std::uint64_t fanout = 1; fanout <= max_vector_fanout; ++fanout) {
    for (const std::uint64_t degree : degrees) {
      for (int repeat = 0; repeat < 40; ++repeat) {
        const auto node = static_cast<Word>(draw64(7, counter++));
        check_list<Word>({node, list_begin, static_cast<Word>(degree)}, fanout, draw64(8, counter++));
      }
    }
  }
}

}  // namespace

int main() {
  if (!has_vector_draws()) return 0;
  vector_draws_are_the_portable_ones<std::uint32_t>(0);
  vector_draws_are_the_portable_ones<std::uint32_t>(4'000'000'000);
  vector_draws_are_the_portable_ones<std::uint64_t>((std::uint64_t{1} << 32) - 5);
  vector_draws_are_the_portable_ones<std::uint64_t>(std::uint64_t{1} << 40);
}
