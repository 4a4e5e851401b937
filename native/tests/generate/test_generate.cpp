// Generated edges and features: the same bits with any instruction set and in any blocks, with the requested
// distribution.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/generate/generate.hpp"
#include "generate/generate_blocks.hpp"

using diskhop::Direction;
using diskhop::GraphPart;
using diskhop::InstructionSet;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

constexpr std::array<double, 4> chances = {.45, .22, .22, .11};

std::vector<InstructionSet> available() {
  std::vector<InstructionSet> found = {InstructionSet::portable};
  if (diskhop::best_instruction_set() != InstructionSet::portable) found.push_back(InstructionSet::avx2);
  if (diskhop::best_instruction_set() == InstructionSet::avx512) found.push_back(InstructionSet::avx512);
  return found;
}

template <typename Word>
void check_instructions_agree(std::uint64_t num_nodes) {
  const diskhop::Rmat rmat = {.key = 77,
                              .num_nodes = num_nodes,
                              .levels = static_cast<unsigned>(64 - __builtin_clzll(num_nodes - 1)),
                              .last_draws = {1932735283U, 2877628088U, 3822520893U}};
  const diskhop::IdPermutation<Word> permutation(num_nodes, 5);
  for (const std::size_t count : {1UL, 63UL, 64UL, 1000UL, diskhop::block_edges}) {
    std::vector<Word> expected[2];
    for (const InstructionSet instructions : available()) {
      std::vector<Word> sources(count), destinations(count);
      diskhop::rmat_block(instructions, rmat, 123456789012, sources.data(), destinations.data(), count);
      for (const Word id : sources) check(id < num_nodes, "a source is a node");
      for (const Word id : destinations) check(id < num_nodes, "a destination is a node");
      diskhop::permute_block(instructions, permutation, Direction::forward, sources.data(), count);
      if (instructions == InstructionSet::portable) {
        expected[0] = sources;
        expected[1] = destinations;
      }
      check(sources == expected[0] && destinations == expected[1], "all instructions give the same edges");
    }
  }
}

void test_instructions_agree() {
  for (const std::uint64_t num_nodes : {2UL, 3UL, 1000UL, 1024UL, 1025UL, 4'000'000UL, (1UL << 32) - 1}) {
    check_instructions_agree<std::uint32_t>(num_nodes);
    check_instructions_agree<std::uint64_t>(num_nodes);
  }
  check_instructions_agree<std::uint64_t>((1UL << 40) + 12345);
  std::vector<float> expected(2 * diskhop::block_pairs);
  for (std::uint64_t node = 0; node < 3000; ++node) {
    for (const InstructionSet instructions : available()) {
      std::vector<float> values(2 * diskhop::block_pairs);
      diskhop::normal_block(instructions, diskhop::absorb(3, node), 7, values.data(), diskhop::block_pairs);
      if (instructions == InstructionSet::portable) expected = values;
      check(std::memcmp(values.data(), expected.data(), values.size() * 4) == 0,
            "all instructions give the same noise");
    }
  }
}

void test_permutation_is_a_bijection() {
  for (std::uint32_t num_nodes = 1; num_nodes < 700; ++num_nodes) {
    for (const std::uint64_t seed : {0UL, 1UL, ~0UL}) {
      std::vector<std::uint32_t> ids(num_nodes);
      std::iota(ids.begin(), ids.end(), 0U);
      diskhop::permute_ids(num_nodes, seed, GraphPart::ids, Direction::forward, std::span(ids));
      std::vector<bool> is_hit(num_nodes);
      for (const std::uint32_t id : ids) {
        check(id < num_nodes && !is_hit[id], "every node is the image of one, of " + std::to_string(num_nodes));
        is_hit[id] = true;
      }
      diskhop::permute_ids(num_nodes, seed, GraphPart::ids, Direction::inverse, std::span(ids));
      for (std::uint32_t id = 0; id < num_nodes; ++id) check(ids[id] == id, "the inverse finds every node again");
    }
  }
  for (const std::int64_t num_nodes : {(1L << 32) - 1, (1L << 32) + 1, (1L << 62) + 12345}) {
    const std::vector<std::int64_t> ids = {0, 1, 77, num_nodes / 2, num_nodes - 1};
    std::vector<std::int64_t> there_and_back = ids;
    const auto count = static_cast<std::uint64_t>(num_nodes);
    diskhop::permute_ids(count, 3, GraphPart::ids, Direction::forward, std::span(there_and_back));
    check(there_and_back != ids, "large ids move");
    diskhop::permute_ids(count, 3, GraphPart::ids, Direction::inverse, std::span(there_and_back));
    check(there_and_back == ids, "the inverse finds large ids again");
  }
}

template <typename Id>
void check_blocks_agree() {
  constexpr std::size_t count = 5000;
  std::vector<Id> sources(count), destinations(count);
  diskhop::rmat_edges<Id>(3000, chances, true, 9, 100, sources, destinations);
  for (std::size_t begin = 0, length = 1; begin < count; begin += length, length = length * 2 + 1) {
    length = std::min(length, count - begin);
    std::vector<Id> part_sources(length), part_destinations(length);
    diskhop::rmat_edges<Id>(3000, chances, true, 9, 100 + begin, part_sources, part_destinations);
    check(std::equal(part_sources.begin(), part_sources.end(), sources.begin() + static_cast<std::ptrdiff_t>(begin)),
          "blocks give the sources of the whole");
    check(std::equal(part_destinations.begin(), part_destinations.end(),
                     destinations.begin() + static_cast<std::ptrdiff_t>(begin)),
          "blocks give the destinations of the whole");
  }
}

void test_every_level_draws_its_quadrants() {
  constexpr std::size_t count = 200'000;
  constexpr unsigned levels = 10;
  std::vector<std::uint32_t> sources(count), destinations(count);
  diskhop::rmat_edges<std::uint32_t>(1 << levels, chances, false, 4, 0, sources, destinations);
  for (unsigned level = 0; level < levels; ++level) {
    std::array<double, 4> shares{};
    for (std::size_t i = 0; i < count; ++i) {
      shares[2 * ((sources[i] >> level) & 1) + ((destinations[i] >> level) & 1)] += 1.0 / count;
    }
    for (std::size_t quadrant = 0; quadrant < 4; ++quadrant) {
      // Five standard deviations of a binomial share.
      const double bound = 5 * std::sqrt(chances[quadrant] * (1 - chances[quadrant]) / count);
      check(std::abs(shares[quadrant] - chances[quadrant]) < bound, "a quadrant has its share");
    }
  }
}

void test_normal_values() {
  constexpr std::size_t num_nodes = 4000, dim = 101;
  std::vector<std::int64_t> nodes(num_nodes);
  std::iota(nodes.begin(), nodes.end(), 0);
  std::vector<float> rows(num_nodes * dim);
  diskhop::feature_rows(1, nodes, dim, {}, {}, rows);
  double worst = 0, moments[5] = {};
  for (std::size_t node = 0; node < num_nodes; ++node) {
    const std::uint64_t key =
        diskhop::absorb(diskhop::make_part_key(1, GraphPart::noise), static_cast<std::uint64_t>(nodes[node]));
    for (std::uint32_t column = 0; column < dim; ++column) {
      const double value = rows[node * dim + column];
      // Box and Muller's transform of the same draws, in double precision.
      const double u = ((diskhop::draw32(key, column & ~1U) >> 1) + 0.5) * 0x1p-31;
      const std::uint32_t turn = diskhop::draw32(key, column | 1U);
      const double angle = static_cast<std::int32_t>(turn << 2) * (std::numbers::pi / 4 * 0x1p-31);
      const double across = turn & 0x40000000 ? std::sin(angle) : std::cos(angle);
      const double along = turn & 0x40000000 ? std::cos(angle) : std::sin(angle);
      const double radius = std::sqrt(-2 * std::log(u)) * (turn & 0x80000000 ? -1 : 1);
      worst = std::max(worst, std::abs(value - radius * (column % 2 == 0 ? across : along)));
      for (int power = 1; power <= 4; ++power) moments[power] += std::pow(value, power) / (num_nodes * dim);
    }
  }
  // Near u = 1 single precision is the limit: the radius is then below 1e-3.
  check(worst < 3e-4, "values are those of the exact transform, worst " + std::to_string(worst));
  // Five standard deviations over 404 000 values: 1 for the mean; sqrt(2), sqrt(15), sqrt(96) for the moments.
  const double unit = 5 / std::sqrt(static_cast<double>(rows.size()));
  check(std::abs(moments[1]) < unit, "the mean is 0");
  check(std::abs(moments[2] - 1) < unit * std::sqrt(2), "the variance is 1");
  check(std::abs(moments[3]) < unit * std::sqrt(15), "there is no skew");
  check(std::abs(moments[4] - 3) < unit * std::sqrt(96), "the fourth moment is 3");
}

void test_means_are_added() {
  const std::vector<std::int64_t> nodes = {5, 900, 5};
  const std::vector<std::int64_t> classes = {1, 0, 0};
  const std::vector<float> means = {1, 2, 3, 10, 20, 30};
  std::vector<float> noise(9), rows(9);
  diskhop::feature_rows(8, nodes, 3, {}, {}, noise);
  diskhop::feature_rows(8, nodes, 3, means, classes, rows);
  for (std::size_t i = 0; i < 9; ++i) {
    const float mean = means[static_cast<std::size_t>(classes[i / 3]) * 3 + i % 3];
    check(rows[i] == noise[i] + mean, "a row is its class's mean and the node's noise");
  }
  check(noise[0] == noise[6] && noise[0] != noise[3], "noise belongs to the node");
}

void test_a_quadrant_without_chance_is_not_drawn() {
  // The edge with the largest possible draw.
  std::vector<std::uint32_t> sources(1), destinations(1);
  diskhop::rmat_edges<std::uint32_t>(1UL << 31, {.5, .5, 0, 0}, false, 3, 117'697'245, sources, destinations);
  check(sources[0] == 0, "all sources are in the upper half, at every level");
}

void test_bad_arguments_are_refused() {
  std::vector<std::uint32_t> ids(4), fewer(3);
  check_throws<std::invalid_argument>(
      [&] { diskhop::rmat_edges<std::uint32_t>(9, {0, .5, .25, .25}, true, 0, 0, ids, ids); }, "a chance a of 0");
  check_throws<std::invalid_argument>(
      [&] { diskhop::rmat_edges<std::uint32_t>(9, {.5, .5, .5, .5}, true, 0, 0, ids, ids); }, "a sum of 2");
  check_throws<std::invalid_argument>([&] { diskhop::uniform_edges<std::uint32_t>(0, 0, 0, ids, ids); }, "no nodes");
  check_throws<std::invalid_argument>([&] { diskhop::uniform_edges<std::uint32_t>(1UL << 32, 0, 0, ids, ids); },
                                      "nodes beyond 32 bits");
  check_throws<std::invalid_argument>([&] { diskhop::uniform_edges<std::uint32_t>(9, 0, 0, ids, fewer); },
                                      "fewer destinations");
  check_throws<std::invalid_argument>([&] { diskhop::block_model_edges<std::uint32_t>(9, 5, .5, 0, 0, ids, ids); },
                                      "a class of one node");
  for (const double homophily : {-.1, 1.1, static_cast<double>(NAN)}) {
    check_throws<std::invalid_argument>(
        [&] { diskhop::block_model_edges<std::uint32_t>(9, 2, homophily, 0, 0, ids, ids); }, "no chance");
  }
  ids[2] = 9;
  check_throws<std::invalid_argument>(
      [&] { diskhop::permute_ids<std::uint32_t>(9, 0, GraphPart::ids, Direction::forward, ids); },
      "an id that is no node");
  std::vector<float> rows(4);
  check_throws<std::invalid_argument>(
      [&] {
        diskhop::feature_rows(0, std::vector<std::int64_t>{1, 2}, 2, std::vector<float>{1, 2},
                              std::vector<std::int64_t>{0, 1}, rows);
      },
      "a class without a mean");
}

}  // namespace

int main() {
  test_instructions_agree();
  test_permutation_is_a_bijection();
  check_blocks_agree<std::uint32_t>();
  check_blocks_agree<std::int64_t>();
  test_every_level_draws_its_quadrants();
  test_normal_values();
  test_means_are_added();
  test_a_quadrant_without_chance_is_not_drawn();
  test_bad_arguments_are_refused();
}
