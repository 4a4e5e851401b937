// Generated graphs: every edge, class and feature is a pure function of the seed and its own number. Blocks can be made
// in any order and size, by any number of threads.
//
// Ids are std::uint32_t or std::int64_t (Id), nodes 0 .. num_nodes - 1. The seed's permutation of ids is a bijection
// that needs no table. Threading: any number of callers; all functions are pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "diskhop/base/random.hpp"

namespace diskhop {

/// Purpose of a draw, part of its key. The numbers are part of every generated graph.
enum class GraphPart : std::uint64_t { edges = 0, ids = 1, classes = 2, noise = 3, splits = 4 };

/// forward: ids become their images. inverse: images become their ids.
enum class Direction { forward, inverse };

[[nodiscard]] constexpr std::uint64_t make_part_key(std::uint64_t seed, GraphPart part) noexcept {
  return absorb(absorb(0, seed), static_cast<std::uint64_t>(part));
}

/// Generates edges first, first + 1, ... of an R-MAT (stochastic Kronecker) graph (Chakrabarti, Zhan and Faloutsos,
/// 2004). The adjacency matrix of 2^levels >= num_nodes rows is halved both ways, level by level. A quadrant is drawn
/// with probability a (low source, low destination), b (low, high), c (high, low) or d. Edges that end outside the
/// graph are drawn again, whole; parallel edges and loops stay. is_permuted: ids are then permuted by the seed. Throws
/// std::invalid_argument unless the probabilities are from 0 to 1 with sum 1, and a is at least least_rmat_a.
template <typename Id>
void rmat_edges(std::uint64_t num_nodes, const std::array<double, 4>& chances, bool is_permuted, std::uint64_t seed,
                std::uint64_t first, std::span<Id> sources, std::span<Id> destinations);

/// Lower bound of a: an edge ends inside the graph with at least this probability, which bounds the mean number of
/// tries.
inline constexpr double least_rmat_a = 0.01;

/// Generates edges with both ends uniform.
template <typename Id>
void uniform_edges(std::uint64_t num_nodes, std::uint64_t seed, std::uint64_t first, std::span<Id> sources,
                   std::span<Id> destinations);

/// Generates edges of a stochastic block model in which node v has class v mod num_classes. The destination is uniform.
/// With probability `homophily` the source is another node of the same class. Otherwise its class is uniform over the
/// other classes, and the source uniform in it. Throws std::invalid_argument for fewer than 2 classes, or fewer than 2
/// nodes in each.
template <typename Id>
void block_model_edges(std::uint64_t num_nodes, std::uint64_t num_classes, double homophily, std::uint64_t seed,
                       std::uint64_t first, std::span<Id> sources, std::span<Id> destinations);

/// Replaces ids by their images under a bijection of 0 .. num_nodes - 1: rounds of adding, multiplying and shifting in
/// as many bits as the ids have, repeated for images out of range. The inverse undoes the steps, the last one first.
template <typename Id>
void permute_ids(std::uint64_t num_nodes, std::uint64_t seed, GraphPart part, Direction direction, std::span<Id> ids);

/// Draws a class for each node, uniform over 0 .. num_classes - 1.
void node_classes(std::uint64_t seed, std::uint64_t num_classes, std::span<const std::int64_t> nodes,
                  std::span<std::int64_t> classes);

/// Generates feature rows (nodes, dim): standard normal noise (Box and Muller, from two 32-bit draws per pair of
/// columns) plus row classes[i] of `means` (classes, dim). Without means and classes: only noise. A value depends only
/// on the seed, the node, the column and its mean. Operations are single-precision and rounded as IEEE 754 defines (no
/// library functions, no fused products). They are within 3e-4 of the exact transform, and far closer unless both
/// columns are near 0.
void feature_rows(std::uint64_t seed, std::span<const std::int64_t> nodes, std::size_t dim,
                  std::span<const float> means, std::span<const std::int64_t> classes, std::span<float> rows);

}  // namespace diskhop
