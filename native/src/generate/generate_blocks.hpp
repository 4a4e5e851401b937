// Inner loops of generate.cpp, one block at a time, per instruction set: all give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "diskhop/generate/generate.hpp"
#include "diskhop/simd/instruction_set.hpp"

namespace diskhop {

/// Edges per block; small enough for the first-level cache, as block_pairs is.
inline constexpr std::size_t block_edges = 1024;
inline constexpr std::size_t block_pairs = 64;

/// A keyed bijection of 0 .. num_ids - 1. Word is std::uint32_t or std::uint64_t.
template <typename Word>
struct IdPermutation {
  static constexpr std::size_t num_rounds = 4;
  Word num_ids;
  Word mask;  // the bits of num_ids - 1
  unsigned shift;
  std::array<Word, num_rounds> addends;
  std::array<Word, num_rounds> factors;  // odd: products by them are invertible
  std::array<Word, num_rounds> inverse_factors;

  IdPermutation(std::uint64_t num_nodes, std::uint64_t key);
};

/// Permutes at most block_edges ids.
template <typename Word>
void permute_block(InstructionSet instructions, const IdPermutation<Word>& permutation, Direction direction, Word* ids,
                   std::size_t num_ids);

struct Rmat {
  std::uint64_t key;
  std::uint64_t num_nodes;
  unsigned levels;
  std::array<std::uint32_t, 3> last_draws;  // of the first quadrant, the first two, the first three
};

/// Draws at most block_edges edges, first, first + 1, ...
template <typename Word>
void rmat_block(InstructionSet instructions, const Rmat& rmat, std::uint64_t first, Word* sources, Word* destinations,
                std::size_t num_edges);

/// Draws pairs of standard normal values first_pair, ... (at most block_pairs) of a node: columns 2 p and 2 p + 1.
void normal_block(InstructionSet instructions, std::uint64_t node_key, std::uint32_t first_pair, float* values,
                  std::size_t num_pairs);

}  // namespace diskhop
