// Draws of positions in neighbour lists (see sampler.hpp), in two implementations with equal results.
#pragma once

#include <cstddef>
#include <cstdint>

namespace diskhop {

/// A list: indices[begin] .. indices[begin + degree - 1]. Word is std::uint32_t if all positions and numbers of nodes
/// and lists are below 2^32, else std::uint64_t.
template <typename Word>
struct NeighborList {
  Word number;  // of a graph without types, that of its node
  Word begin;
  Word degree;
};

/// How far beyond the last drawn position memory may be overwritten: whole registers are stored.
inline constexpr std::size_t max_draw_overrun = 16;

/// Longest draw that fits one register.
inline constexpr std::uint64_t max_vector_fanout = 16;

/// Writes the min(fan-out, degree) sampled positions of a list.
template <typename Word>
void draw_list_portable(const NeighborList<Word>& list, std::uint64_t fanout, std::uint64_t hop_key, Word* positions);

/// The same with all draws at once, for fan-outs up to max_vector_fanout, if has_vector_draws().
void draw_list_vector(const NeighborList<std::uint32_t>& list, std::uint64_t fanout, std::uint64_t hop_key,
                      std::uint32_t* positions);
void draw_list_vector(const NeighborList<std::uint64_t>& list, std::uint64_t fanout, std::uint64_t hop_key,
                      std::uint64_t* positions);

[[nodiscard]] bool has_vector_draws();

extern template void draw_list_portable<std::uint32_t>(const NeighborList<std::uint32_t>&, std::uint64_t, std::uint64_t,
                                                       std::uint32_t*);
extern template void draw_list_portable<std::uint64_t>(const NeighborList<std::uint64_t>&, std::uint64_t, std::uint64_t,
                                                       std::uint64_t*);

/// The same in the faster of both ways.
template <typename Word>
void draw_list(const NeighborList<Word>& list, std::uint64_t fanout, std::uint64_t hop_key, Word* positions) {
  static const bool has_vector = has_vector_draws();
  if (has_vector && fanout <= max_vector_fanout) {
    draw_list_vector(list, fanout, hop_key, positions);
  } else {
    draw_list_portable(list, fanout, hop_key, positions);
  }
}

}  // namespace diskhop
