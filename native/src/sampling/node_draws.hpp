// Draws of nodes that all lists of a hop share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "diskhop/base/random.hpp"

namespace diskhop {

/// The whole numbers below 2^52 that draws are.
inline constexpr unsigned draw_shift = 12;

/// Maps a draw of 52 bits to a number between 0 and 1, both excluded. Exact.
[[nodiscard]] constexpr double as_fraction(std::uint64_t draw) { return (static_cast<double>(draw) + 0.5) * 0x1p-52; }

/// Returns how many draws of 52 bits have a fraction below a probability from 0 to 1: as_fraction(draw) < probability
/// if and only if draw < num_draws_below(probability).
[[nodiscard]] inline std::uint64_t num_draws_below(double probability) {
  return static_cast<std::uint64_t>(std::ceil(std::max(0.0, probability * 0x1p52 - 0.5)));
}

/// Draws of one hop of one batch; see ImportanceOptions::batch_dependency.
class NodeDraws {
 public:
  NodeDraws(const DrawKey& key, std::uint64_t hop, std::uint64_t dependency)
      : dependency_(dependency), phase_(key.batch % dependency) {
    DrawKey of_group = key;
    of_group.batch = key.batch / dependency;
    keys_[0] = make_hop_key(of_group, hop, 0);
    ++of_group.batch;
    keys_[1] = make_hop_key(of_group, hop, 0);
    of_group.batch = ~std::uint64_t{0};
    turns_key_ = make_hop_key(of_group, hop, 0);
  }

  /// Draws 52 bits for a node.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t node) const {
    if (dependency_ == 1) return absorb(keys_[0], node) >> draw_shift;
    const std::uint64_t turn = scale64(absorb(turns_key_, node), dependency_);
    return absorb(keys_[phase_ + turn >= dependency_ ? 1 : 0], node) >> draw_shift;
  }

 private:
  std::uint64_t dependency_;
  std::uint64_t phase_;
  std::array<std::uint64_t, 2> keys_;
  std::uint64_t turns_key_;
};

}  // namespace diskhop
