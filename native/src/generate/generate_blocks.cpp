#include "generate/generate_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "diskhop/base/random.hpp"
#include "simd/instruction_sets.hpp"

// Plain loops that the compiler vectorises; each is written once and inlined into one function per instruction set.
namespace diskhop {

template <typename Word>
IdPermutation<Word>::IdPermutation(std::uint64_t num_nodes, std::uint64_t key)
    : num_ids(static_cast<Word>(num_nodes)),
      mask(num_nodes < 2 ? Word{0} : static_cast<Word>(~std::uint64_t{0} >> std::countl_zero(num_nodes - 1))),
      shift(std::max(1U, static_cast<unsigned>(65 - std::countl_zero(static_cast<std::uint64_t>(mask))) / 2)) {
  for (std::size_t round = 0; round < num_rounds; ++round) {
    addends[round] = static_cast<Word>(draw64(key, 2 * round)) & mask;
    factors[round] = static_cast<Word>(draw64(key, 2 * round + 1)) | 1;
    // A Newton step doubles the number of correct low bits; an odd number is its own inverse in the lowest three.
    Word inverse = factors[round];
    for (unsigned bits = 3; bits < 8 * sizeof(Word); bits *= 2) inverse *= 2 - factors[round] * inverse;
    inverse_factors[round] = inverse;
  }
}

namespace {

constexpr std::size_t num_lanes = 64;
static_assert(block_edges % num_lanes == 0);

template <Direction direction, typename Word>
[[gnu::always_inline]] inline Word permute_once(const IdPermutation<Word>& permutation, Word id) {
  constexpr std::size_t num_rounds = IdPermutation<Word>::num_rounds;
  for (std::size_t i = 0; i < num_rounds; ++i) {
    if constexpr (direction == Direction::forward) {
      id = ((id + permutation.addends[i]) * permutation.factors[i]) & permutation.mask;
      id ^= id >> permutation.shift;  // by at least half of the bits: a second application undoes it
    } else {
      const std::size_t round = num_rounds - 1 - i;
      id ^= id >> permutation.shift;
      id = (id * permutation.inverse_factors[round] - permutation.addends[round]) & permutation.mask;
    }
  }
  return id;
}

template <Direction direction, typename Word>
[[gnu::always_inline]] inline void permute_all(const IdPermutation<Word>& given, Word* ids, std::size_t num_ids) {
  const IdPermutation<Word> permutation = given;  // a copy: ids cannot alias it
  std::array<std::uint32_t, block_edges> outside;
  std::array<Word, block_edges> walking;
  for (std::size_t i = 0; i < num_ids; ++i) ids[i] = permute_once<direction>(permutation, ids[i]);
  std::size_t num_outside = 0;
  for (std::size_t i = 0; i < num_ids; ++i) {
    outside[num_outside] = static_cast<std::uint32_t>(i);
    num_outside += ids[i] >= permutation.num_ids;
  }
  // A walk along the cycle of the larger bijection reaches a valid id before it returns to its start.
  while (num_outside > 0) {
    for (std::size_t i = 0; i < num_outside; ++i) walking[i] = ids[outside[i]];
    for (std::size_t i = 0; i < num_outside; ++i) walking[i] = permute_once<direction>(permutation, walking[i]);
    std::size_t num_left = 0;
    for (std::size_t i = 0; i < num_outside; ++i) {
      const std::uint32_t place = outside[i];
      ids[place] = walking[i];
      outside[num_left] = place;
      num_left += walking[i] >= permutation.num_ids;
    }
    num_outside = num_left;
  }
}

/// One draw per level for num_lanes edges at once: as many as fill the registers.
template <typename Word>
[[gnu::always_inline]] inline void draw_quadrants(const Rmat& rmat, const std::uint64_t* keys, Word* rows,
                                                  Word* columns) {
  const auto [low, middle, high] = rmat.last_draws;
  std::array<std::uint32_t, num_lanes> lower;
  std::array<std::uint32_t, num_lanes> upper;
  std::array<Word, num_lanes> row{};
  std::array<Word, num_lanes> column{};
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    lower[lane] = static_cast<std::uint32_t>(keys[lane]);
    upper[lane] = static_cast<std::uint32_t>(keys[lane] >> 32);
  }
  for (unsigned level = 0; level < rmat.levels; ++level) {
    for (std::size_t lane = 0; lane < num_lanes; ++lane) {
      const std::uint32_t draw = draw32((static_cast<std::uint64_t>(upper[lane]) << 32) | lower[lane], level);
      const Word is_past_middle = draw > middle;
      row[lane] = (row[lane] << 1) | is_past_middle;
      column[lane] = (column[lane] << 1) | (Word{draw > low} ^ is_past_middle ^ Word{draw > high});
    }
  }
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    rows[lane] = row[lane];
    columns[lane] = column[lane];
  }
}

template <typename Word>
[[gnu::always_inline]] inline void rmat_all(const Rmat& rmat, std::uint64_t first, Word* sources, Word* destinations,
                                            std::size_t num_edges) {
  const Word num_nodes = static_cast<Word>(rmat.num_nodes);
  std::array<std::uint32_t, block_edges> places;
  std::array<std::uint64_t, block_edges> keys{};
  std::array<Word, block_edges> rows;
  std::array<Word, block_edges> columns;
  for (std::size_t i = 0; i < num_edges; ++i) places[i] = static_cast<std::uint32_t>(i);
  for (std::uint64_t attempt = 0; num_edges > 0; ++attempt) {
    const std::uint64_t attempt_key = absorb(rmat.key, attempt);
    for (std::size_t i = 0; i < num_edges; ++i) keys[i] = absorb(attempt_key, first + places[i]);
    for (std::size_t i = 0; i < num_edges; i += num_lanes) draw_quadrants(rmat, &keys[i], &rows[i], &columns[i]);
    std::size_t num_left = 0;
    for (std::size_t i = 0; i < num_edges; ++i) {
      const std::uint32_t place = places[i];
      sources[place] = rows[i];
      destinations[place] = columns[i];
      places[num_left] = place;
      num_left += (rows[i] >= num_nodes) | (columns[i] >= num_nodes);
    }
    num_edges = num_left;
  }
}

// -- Normal values --

/// ln(1 + f) = f - f^2 / 2 + f^3 P(f) for f from sqrt(1/2) - 1 to sqrt(2) - 1; sin(x) = x + x^3 S(x^2) and cos(x) = 1 -
/// x^2 / 2 + x^4 C(x^2) up to pi / 4. The coefficients are least-squares fits, reweighted until the largest error was
/// minimal: 6e-9 for P, 4e-9 for S and 1e-10 for C, below single precision.
constexpr std::array<float, 8> log_terms = {3.333331678e-01F, -2.500079657e-01F, 2.000228251e-01F, -1.662496975e-01F,
                                            1.418142039e-01F, -1.312529658e-01F, 1.287919881e-01F, -7.865444528e-02F};
constexpr std::array<float, 3> sine_terms = {-1.666665495e-01F, 8.332178416e-03F, -1.951732827e-04F};
constexpr std::array<float, 3> cosine_terms = {4.166664689e-02F, -1.388736854e-03F, 2.443855300e-05F};

template <std::size_t count>
[[gnu::always_inline]] inline float polynomial(const std::array<float, count>& terms, float x) {
  float sum = terms[count - 1];
  for (std::size_t i = count - 1; i > 0; --i) sum = sum * x + terms[i - 1];
  return sum;
}

/// Distance from 0 of a point with two standard normal coordinates: sqrt(-2 ln u) for u uniform in (0, 1), with 2^31
/// distinct values.
[[gnu::always_inline]] inline float radius_of(std::uint32_t draw) {
  const float uniform = (static_cast<float>(static_cast<std::int32_t>(draw >> 1)) + 0.5F) * 0x1p-31F;
  // u = 2^exponent (1 + f), with 1 + f from sqrt(1/2) to sqrt(2).
  constexpr std::uint32_t root_half = 0x3f3504f3;
  const std::uint32_t shifted = std::bit_cast<std::uint32_t>(uniform) - root_half;
  const float exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  const float f = std::bit_cast<float>((shifted & 0x007fffff) + root_half) - 1.0F;
  const float logarithm = exponent * 0.693147181F + (f - f * f * 0.5F + f * f * f * polynomial(log_terms, f));
  return std::sqrt(std::max(logarithm * -2.0F, 0.0F));
}

[[gnu::always_inline]] inline void normal_all(std::uint64_t node_key, std::uint32_t first_pair, float* values,
                                              std::size_t num_pairs) {
  // Always a whole block: its length is a constant, and the surplus costs less than a loop for the rest.
  std::array<float, block_pairs> evens;
  std::array<float, block_pairs> odds;
  for (std::uint32_t pair = 0; pair < block_pairs; ++pair) {
    const std::uint32_t counter = 2 * (first_pair + pair);
    const float radius = radius_of(draw32(node_key, counter));
    // The direction: an angle within pi / 4 of 0 from 30 bits, then two bits for the quarter of the circle.
    const std::uint32_t draw = draw32(node_key, counter + 1);
    const float angle = static_cast<float>(static_cast<std::int32_t>(draw << 2)) * 0x1.921fb6p-32F;
    const float square = angle * angle;
    const float sine = angle + angle * square * polynomial(sine_terms, square);
    const float cosine = 1.0F - square * 0.5F + square * square * polynomial(cosine_terms, square);
    const float signed_radius = std::bit_cast<float>(std::bit_cast<std::uint32_t>(radius) ^ (draw & 0x80000000));
    const bool is_turned = draw & 0x40000000;
    evens[pair] = signed_radius * (is_turned ? sine : cosine);
    odds[pair] = signed_radius * (is_turned ? cosine : sine);
  }
  for (std::size_t pair = 0; pair < num_pairs; ++pair) {
    values[2 * pair] = evens[pair];
    values[2 * pair + 1] = odds[pair];
  }
}

}  // namespace

template <typename Word>
void permute_block(InstructionSet instructions, const IdPermutation<Word>& permutation, Direction direction, Word* ids,
                   std::size_t num_ids) {
  if (direction == Direction::forward) {
    const auto task = [&] [[gnu::always_inline]] () { permute_all<Direction::forward>(permutation, ids, num_ids); };
    run_with(instructions, task);
  } else {
    const auto task = [&] [[gnu::always_inline]] () { permute_all<Direction::inverse>(permutation, ids, num_ids); };
    run_with(instructions, task);
  }
}

template <typename Word>
void rmat_block(InstructionSet instructions, const Rmat& rmat, std::uint64_t first, Word* sources, Word* destinations,
                std::size_t num_edges) {
  const auto task = [&] [[gnu::always_inline]] () { rmat_all(rmat, first, sources, destinations, num_edges); };
  run_with(instructions, task);
}

void normal_block(InstructionSet instructions, std::uint64_t node_key, std::uint32_t first_pair, float* values,
                  std::size_t num_pairs) {
  const auto task = [&] [[gnu::always_inline]] () { normal_all(node_key, first_pair, values, num_pairs); };
  run_with(instructions, task);
}

template struct IdPermutation<std::uint32_t>;
template struct IdPermutation<std::uint64_t>;
template void permute_block(InstructionSet, const IdPermutation<std::uint32_t>&, Direction, std::uint32_t*,
                            std::size_t);
template void permute_block(InstructionSet, const IdPermutation<std::uint64_t>&, Direction, std::uint64_t*,
                            std::size_t);
template void rmat_block(InstructionSet, const Rmat&, std::uint64_t, std::uint32_t*, std::uint32_t*, std::size_t);
template void rmat_block(InstructionSet, const Rmat&, std::uint64_t, std::uint64_t*, std::uint64_t*, std::size_t);

}  // namespace diskhop
