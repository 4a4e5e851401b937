// Draws from the lists of one piece of a hop, in every way that NeighborOptions has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "diskhop/base/random.hpp"
#include "diskhop/sampling/variants.hpp"
#include "sampling/draws.hpp"
#include "sampling/hop_lists.hpp"
#include "sampling/list_reader.hpp"
#include "sampling/picks.hpp"

namespace diskhop {

/// Everything that a draw from one list depends on. weights, times: of its edges, or empty without any. Where nodes are
/// in partitions, the time of a neighbour is 0 if it is resident and 1 if not, and latest is 0.
struct ListToDraw {
  FoundList list;
  std::uint64_t fanout;
  std::uint64_t hop_key;
  std::int64_t latest;  // of the seed
  std::span<const double> weights;
  std::span<const std::int64_t> times;
};

/// Appends drawn positions, one list after another. Threading: one thread at a time.
class ListDraws {
 public:
  explicit ListDraws(const NeighborOptions& options)
      : options_(options),
        has_times_(options.edge_times.exists || options.node_times.exists || options.nodes_per_partition > 0) {}

  [[nodiscard]] bool has_times() const { return has_times_; }
  /// Says whether draws depend on the values of a whole list.
  [[nodiscard]] bool looks_at_lists() const { return has_times_ || options_.weights.exists; }

  /// Number of edges drawn from a number of candidates, without weights.
  [[nodiscard]] std::uint64_t count(std::uint64_t num_candidates, std::uint64_t fanout) const {
    if (options_.replaces && fanout != all_neighbors) return num_candidates > 0 ? fanout : 0;
    return std::min(num_candidates, fanout);
  }

  /// Draws positions. Returns how many. Throws std::domain_error for a weight that is negative or not finite.
  std::size_t draw(const ListToDraw& from, std::vector<std::uint64_t>& positions) {
    const std::size_t num_before = positions.size();
    if (!looks_at_lists()) {
      draw_uniform(from, from.list.degree, from.list.begin, positions);
      return positions.size() - num_before;
    }
    offsets_.clear();
    if (has_times_) {
      ListPicker::pick_until(from.times, from.latest, offsets_);
      if (options_.takes_latest) picker_.keep_latest(from.times, from.fanout, offsets_);
    } else {
      offsets_.resize(from.list.degree);
      std::iota(offsets_.begin(), offsets_.end(), std::uint64_t{0});
    }
    chosen_.clear();
    if (options_.weights.exists) {
      draw_weighted(from);
    } else {
      draw_uniform(from, offsets_.size(), 0, chosen_);
    }
    for (const std::uint64_t chosen : chosen_) positions.push_back(from.list.begin + offsets_[chosen]);
    return positions.size() - num_before;
  }

  [[nodiscard]] std::size_t num_bytes() const {
    return picker_.num_bytes() + (offsets_.capacity() + chosen_.capacity()) * sizeof(std::uint64_t) +
           weights_.capacity() * sizeof(double);
  }

 private:
  void draw_uniform(const ListToDraw& from, std::uint64_t num_candidates, std::uint64_t begin,
                    std::vector<std::uint64_t>& drawn) const {
    const std::uint64_t num_draws = count(num_candidates, from.fanout);
    const std::size_t num_before = drawn.size();
    drawn.resize(num_before + num_draws + max_draw_overrun);
    std::uint64_t* const out = drawn.data() + num_before;
    if (options_.replaces && from.fanout != all_neighbors) {
      ListPicker::draw_again(num_candidates, num_draws, absorb(from.hop_key, from.list.number), out);
      for (std::uint64_t number = 0; number < num_draws; ++number) out[number] += begin;
    } else {
      draw_list<std::uint64_t>({from.list.number, begin, num_candidates}, from.fanout, from.hop_key, out);
    }
    drawn.resize(num_before + num_draws);
  }

  void draw_weighted(const ListToDraw& from) {
    weights_.clear();
    for (const std::uint64_t offset : offsets_) {
      const double weight = from.weights[offset];
      if (!(weight >= 0 && weight <= std::numeric_limits<double>::max())) refuse_weight(from.list, offset, weight);
      weights_.push_back(weight);
    }
    const std::uint64_t key = absorb(from.hop_key, from.list.number);
    if (options_.replaces && from.fanout != all_neighbors) {
      picker_.draw_weighted_again(weights_, from.fanout, key, chosen_);
    } else {
      picker_.pick_weighted(weights_, from.fanout, key, chosen_);
    }
  }

  [[noreturn, gnu::noinline]] static void refuse_weight(const FoundList& list, std::uint64_t offset, double weight) {
    throw std::domain_error("the weight of the edge at position " + std::to_string(list.begin + offset) + " is " +
                            std::to_string(weight));
  }

  NeighborOptions options_;
  bool has_times_;
  ListPicker picker_;
  std::vector<std::uint64_t> offsets_;  // of the candidates
  std::vector<std::uint64_t> chosen_;   // places in offsets_
  std::vector<double> weights_;         // of the candidates
};

}  // namespace diskhop
