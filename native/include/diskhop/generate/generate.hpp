// Made-up graphs: every edge, class and feature is a pure function of the seed and its own number, so that blocks can
// be made in any order, by any number of threads, and of any size.
//
// Ids are std::uint32_t or std::int64_t (Id), nodes 0 .. num_nodes - 1; the seed's permutation is a bijection of them
// that takes no table. All functions are pure: any number of threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "diskhop/base/random.hpp"

namespace diskhop {

/// What a draw is for: part of its key. The numbers are part of every generated graph.
enum class GraphPart : std::uint64_t { edges = 0, ids = 1, classes = 2, noise = 3, splits = 4 };

/// Whether ids become their images, or images the ids that they are of.
enum class Direction { forward, inverse };

[[nodiscard]] constexpr std::uint64_t make_part_key(std::uint64_t seed, GraphPart part) noexcept {
  return absorb(absorb(0, seed), static_cast<std::uint64_t>(part));
}

/// Edges first, first + 1, ... of an R-MAT (stochastic Kronecker) graph (Chakrabarti, Zhan and Faloutsos, 2004). The
/// adjacency matrix of 2^levels >= num_nodes rows is halved both ways, level by level: a quadrant is drawn with the
/// chances a (low source, low destination), b (low, high), c (high, low) and d. Edges that end outside of the graph are
/// drawn again, whole; parallel edges and loops stay. Ids are then permuted by the seed, if is_permuted.
/// Throws std::invalid_argument unless the chances are from 0 to 1 with sum 1 and a at least least_rmat_a.
template <typename Id>
void rmat_edges(std::uint64_t num_nodes, const std::array<double, 4>& chances, bool is_permuted, std::uint64_t seed,
                std::uint64_t first, std::span<Id> sources, std::span<Id> destinations);

/// An edge ends inside of the graph with at least the chance a: so many tries are needed at most, on average.
inline constexpr double least_rmat_a = 0.01;

/// Edges whose two ends are drawn uniformly.
template <typename Id>
void uniform_edges(std::uint64_t num_nodes, std::uint64_t seed, std::uint64_t first, std::span<Id> sources,
                   std::span<Id> destinations);

/// Edges of a stochastic block model in which node v is of class v mod num_classes: the destination is drawn uniformly,
/// the source with chance `homophily` among the other nodes of its class, and otherwise in another class, all other
/// classes equally likely, uniformly in each. Throws std::invalid_argument for fewer than 2 classes, or 2 nodes in
/// each.
template <typename Id>
void block_model_edges(std::uint64_t num_nodes, std::uint64_t num_classes, double homophily, std::uint64_t seed,
                       std::uint64_t first, std::span<Id> sources, std::span<Id> destinations);

/// Replaces ids by their images under a bijection of 0 .. num_nodes - 1: rounds of adding, multiplying and shifting in
/// as many bits as the ids have, repeated for what falls outside. The inverse undoes each, the last one first.
template <typename Id>
void permute_ids(std::uint64_t num_nodes, std::uint64_t seed, GraphPart part, Direction direction, std::span<Id> ids);

/// A class for each node, uniform over 0 .. num_classes - 1.
void node_classes(std::uint64_t seed, std::uint64_t num_classes, std::span<const std::int64_t> nodes,
                  std::span<std::int64_t> classes);

/// Feature rows (nodes x dim): standard normal noise, by Box and Muller from two 32-bit draws a pair of columns, plus
/// row classes[i] of `means` (classes x dim); no means, no classes: noise alone. A value depends on the seed, the node,
/// the column and its mean, and on nothing else: single-precision operations that IEEE 754 rounds one way (no library's
/// functions, no fused products), within 3e-4 of the exact transform, and far closer unless both columns are near 0.
void feature_rows(std::uint64_t seed, std::span<const std::int64_t> nodes, std::size_t dim,
                  std::span<const float> means, std::span<const std::int64_t> classes, std::span<float> rows);

}  // namespace diskhop
