#include "diskhop/generate/generate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "generate/generate_blocks.hpp"

namespace diskhop {
namespace {

template <typename Id>
[[nodiscard]] std::make_unsigned_t<Id>* as_words(std::span<Id> ids) {
  return reinterpret_cast<std::make_unsigned_t<Id>*>(ids.data());  // the same values in the same size
}

/// Last of the 32-bit draws, from 0 on, that together have this probability (2^-32 or more).
[[nodiscard]] std::uint32_t last_draw(double chance) {
  return static_cast<std::uint32_t>(std::min(std::floor(chance * 0x1p32), 0x1p32) - 1);
}

template <typename Id>
void require_pairs(std::uint64_t num_nodes, std::span<Id> sources, std::span<Id> destinations) {
  if (sources.size() != destinations.size())
    throw std::invalid_argument("sources and destinations must have the same length");
  if (num_nodes < 1 || num_nodes > static_cast<std::uint64_t>(std::numeric_limits<Id>::max())) {
    throw std::invalid_argument("ids of this type are too small for this number of nodes");
  }
}

template <typename Id, typename Body>
void for_each_block(std::span<Id> ids, Body body) {
  for (std::size_t begin = 0; begin < ids.size(); begin += block_edges) {
    body(begin, std::min(block_edges, ids.size() - begin));
  }
}

}  // namespace

template <typename Id>
void rmat_edges(std::uint64_t num_nodes, const std::array<double, 4>& chances, bool is_permuted, std::uint64_t seed,
                std::uint64_t first, std::span<Id> sources, std::span<Id> destinations) {
  require_pairs(num_nodes, sources, destinations);
  const auto [a, b, c, d] = chances;
  const bool are_chances = std::ranges::all_of(chances, [](double chance) { return chance >= 0 && chance <= 1; });
  if (!are_chances || std::abs(a + b + c + d - 1) > 1e-6 || a < least_rmat_a) {
    throw std::invalid_argument("the chances of quadrants must have sum 1, the first at least 0.01");
  }
  const InstructionSet instructions = best_instruction_set();
  const Rmat rmat = {.key = make_part_key(seed, GraphPart::edges),
                     .num_nodes = num_nodes,
                     .levels = static_cast<unsigned>(std::bit_width(num_nodes - 1)),
                     .last_draws = {last_draw(a), last_draw(a + b), last_draw(a + b + c)}};
  for_each_block(sources, [&](std::size_t begin, std::size_t count) {
    rmat_block(instructions, rmat, first + begin, as_words(sources) + begin, as_words(destinations) + begin, count);
  });
  if (!is_permuted) return;
  permute_ids(num_nodes, seed, GraphPart::ids, Direction::forward, sources);
  permute_ids(num_nodes, seed, GraphPart::ids, Direction::forward, destinations);
}

template <typename Id>
void uniform_edges(std::uint64_t num_nodes, std::uint64_t seed, std::uint64_t first, std::span<Id> sources,
                   std::span<Id> destinations) {
  require_pairs(num_nodes, sources, destinations);
  const std::uint64_t key = make_part_key(seed, GraphPart::edges);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::uint64_t edge_key = absorb(key, first + i);
    sources[i] = static_cast<Id>(scale64(draw64(edge_key, 0), num_nodes));
    destinations[i] = static_cast<Id>(scale64(draw64(edge_key, 1), num_nodes));
  }
}

template <typename Id>
void block_model_edges(std::uint64_t num_nodes, std::uint64_t num_classes, double homophily, std::uint64_t seed,
                       std::uint64_t first, std::span<Id> sources, std::span<Id> destinations) {
  require_pairs(num_nodes, sources, destinations);
  if (num_classes < 2 || num_classes > num_nodes / 2) {
    throw std::invalid_argument("there must be at least 2 classes and 2 nodes in each");
  }
  if (!(homophily >= 0 && homophily <= 1)) throw std::invalid_argument("homophily must be from 0 to 1");
  const std::uint64_t key = make_part_key(seed, GraphPart::edges);
  const std::uint64_t whole_rows = num_nodes / num_classes;
  const std::uint64_t rest = num_nodes % num_classes;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::uint64_t edge_key = absorb(key, first + i);
    const std::uint64_t destination = scale64(draw64(edge_key, 0), num_nodes);
    const std::uint64_t row = destination / num_classes;
    const std::uint64_t own_class = destination - row * num_classes;
    const std::uint64_t choice = draw64(edge_key, 1);
    const bool is_same = static_cast<double>(choice >> 11) * 0x1p-53 < homophily;
    std::uint64_t source_class = own_class;
    if (!is_same) {
      const std::uint64_t other = scale64(draw64(edge_key, 2), num_classes - 1);
      source_class = other + (other >= own_class);
    }
    // Members of class c are c, c + C, c + 2 C ...; in its own class a node skips itself.
    const std::uint64_t members = whole_rows + (source_class < rest);
    std::uint64_t position = scale64(draw64(edge_key, 3), members - is_same);
    position += is_same && position >= row;
    sources[i] = static_cast<Id>(position * num_classes + source_class);
    destinations[i] = static_cast<Id>(destination);
  }
}

template <typename Id>
void permute_ids(std::uint64_t num_nodes, std::uint64_t seed, GraphPart part, Direction direction, std::span<Id> ids) {
  using Word = std::make_unsigned_t<Id>;
  require_pairs(num_nodes, ids, ids);
  if (std::ranges::any_of(ids, [&](Id id) { return static_cast<std::uint64_t>(id) >= num_nodes; })) {
    throw std::invalid_argument("an id is not below the number of nodes");
  }
  const InstructionSet instructions = best_instruction_set();
  const IdPermutation<Word> permutation(num_nodes, make_part_key(seed, part));
  for_each_block(ids, [&](std::size_t begin, std::size_t count) {
    permute_block(instructions, permutation, direction, as_words(ids) + begin, count);
  });
}

void node_classes(std::uint64_t seed, std::uint64_t num_classes, std::span<const std::int64_t> nodes,
                  std::span<std::int64_t> classes) {
  if (classes.size() != nodes.size()) throw std::invalid_argument("there must be a place for each class");
  const std::uint64_t key = make_part_key(seed, GraphPart::classes);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    classes[i] = static_cast<std::int64_t>(scale64(absorb(key, static_cast<std::uint64_t>(nodes[i])), num_classes));
  }
}

void feature_rows(std::uint64_t seed, std::span<const std::int64_t> nodes, std::size_t dim,
                  std::span<const float> means, std::span<const std::int64_t> classes, std::span<float> rows) {
  if (dim < 1 || rows.size() != nodes.size() * dim || means.size() % dim != 0) {
    throw std::invalid_argument("rows and means must have dim columns, and a row for each node");
  }
  const std::uint64_t num_classes = means.size() / dim;
  if (num_classes > 0 && (classes.size() != nodes.size() || std::ranges::any_of(classes, [&](std::int64_t each) {
                            return static_cast<std::uint64_t>(each) >= num_classes;
                          }))) {
    throw std::invalid_argument("each node must have a class with a mean");
  }
  const InstructionSet instructions = best_instruction_set();
  const std::uint64_t key = make_part_key(seed, GraphPart::noise);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    float* const row = rows.data() + i * dim;
    const std::uint64_t node_key = absorb(key, static_cast<std::uint64_t>(nodes[i]));
    std::size_t pair = 0;
    for (; pair < dim / 2; pair += block_pairs) {
      normal_block(instructions, node_key, static_cast<std::uint32_t>(pair), row + 2 * pair,
                   std::min(block_pairs, dim / 2 - pair));
    }
    if (dim % 2 == 1) {
      std::array<float, 2> last;
      normal_block(instructions, node_key, static_cast<std::uint32_t>(dim / 2), last.data(), 1);
      row[dim - 1] = last[0];
    }
    if (num_classes > 0) {
      const float* const mean = means.data() + static_cast<std::size_t>(classes[i]) * dim;
      for (std::size_t column = 0; column < dim; ++column) row[column] += mean[column];
    }
  }
}

template void rmat_edges(std::uint64_t, const std::array<double, 4>&, bool, std::uint64_t, std::uint64_t,
                         std::span<std::uint32_t>, std::span<std::uint32_t>);
template void rmat_edges(std::uint64_t, const std::array<double, 4>&, bool, std::uint64_t, std::uint64_t,
                         std::span<std::int64_t>, std::span<std::int64_t>);
template void uniform_edges(std::uint64_t, std::uint64_t, std::uint64_t, std::span<std::uint32_t>,
                            std::span<std::uint32_t>);
template void uniform_edges(std::uint64_t, std::uint64_t, std::uint64_t, std::span<std::int64_t>,
                            std::span<std::int64_t>);
template void block_model_edges(std::uint64_t, std::uint64_t, double, std::uint64_t, std::uint64_t,
                                std::span<std::uint32_t>, std::span<std::uint32_t>);
template void block_model_edges(std::uint64_t, std::uint64_t, double, std::uint64_t, std::uint64_t,
                                std::span<std::int64_t>, std::span<std::int64_t>);
template void permute_ids(std::uint64_t, std::uint64_t, GraphPart, Direction, std::span<std::uint32_t>);
template void permute_ids(std::uint64_t, std::uint64_t, GraphPart, Direction, std::span<std::int64_t>);

}  // namespace diskhop
