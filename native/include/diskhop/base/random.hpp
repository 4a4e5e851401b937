// Counter-based draws: a draw is a pure function of its key and its number, so that no order of work can change it.
//
// These definitions are fixed: stored traces, packed layouts and published figures depend on them. The golden values
// in the tests fail if one changes.
#pragma once

#include <cstdint>

namespace diskhop {

/// What every draw of a batch depends on, besides hop, edge type and node (DESIGN, promise 1).
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint64_t purpose = 0;
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
};

inline constexpr std::uint64_t golden64 = 0x9e3779b97f4a7c15;
inline constexpr std::uint32_t golden32 = 0x9e3779b9;

/// The finaliser of SplitMix64 (Stafford's mix 13): a bijection in which every input bit reaches every output bit.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t word) noexcept {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

/// The word that mix64 maps to this one.
[[nodiscard]] constexpr std::uint64_t unmix64(std::uint64_t word) noexcept {
  word = (word ^ (word >> 31) ^ (word >> 62)) * 0x319642b2d24d8ec3;
  word = (word ^ (word >> 27) ^ (word >> 54)) * 0x96de1b173f119089;
  return word ^ (word >> 30) ^ (word >> 60);
}
static_assert(unmix64(mix64(0x0123456789abcdef)) == 0x0123456789abcdef);

/// Adds one part to a key; for a given key it is a bijection of the part.
[[nodiscard]] constexpr std::uint64_t absorb(std::uint64_t key, std::uint64_t part) noexcept {
  return mix64((key ^ part) + golden64);
}

/// The part that absorb added to give this key.
[[nodiscard]] constexpr std::uint64_t absorbed_part(std::uint64_t key, std::uint64_t absorbed) noexcept {
  return (unmix64(absorbed) - golden64) ^ key;
}

/// The key of one hop over one edge type: seed, purpose, epoch, batch, hop and edge type absorbed in this order.
/// The key of a node within it is absorb(hop key, node).
[[nodiscard]] constexpr std::uint64_t make_hop_key(const DrawKey& key, std::uint64_t hop,
                                                   std::uint64_t edge_type) noexcept {
  std::uint64_t folded = 0;
  for (const std::uint64_t part : {key.seed, key.purpose, key.epoch, key.batch, hop, edge_type}) {
    folded = absorb(folded, part);
  }
  return folded;
}

/// Draw number `counter` of a node, uniform over 32 bits. All arithmetic is 32 bits wide, so that one AVX-512 register
/// holds sixteen draws; both halves of the key take part (the finaliser of MurmurHash3 with the upper half added
/// midway).
[[nodiscard]] constexpr std::uint32_t draw32(std::uint64_t node_key, std::uint32_t counter) noexcept {
  std::uint32_t word = static_cast<std::uint32_t>(node_key) + (counter + 1) * golden32;
  word = (word ^ (word >> 16)) * 0x85ebca6bU;
  word ^= word >> 13;
  word = (word + static_cast<std::uint32_t>(node_key >> 32)) * 0xc2b2ae35U;
  return word ^ (word >> 16);
}

/// Draw number `counter` of a node, uniform over 64 bits (SplitMix64 started at the node's key).
[[nodiscard]] constexpr std::uint64_t draw64(std::uint64_t node_key, std::uint64_t counter) noexcept {
  return mix64(node_key + (counter + 1) * golden64);
}

/// Maps a draw to 0 .. bound - 1 by multiplication; the bias is at most bound / 2^32 and bound / 2^64.
[[nodiscard]] constexpr std::uint32_t scale32(std::uint32_t draw, std::uint32_t bound) noexcept {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(draw) * bound) >> 32);
}

[[nodiscard]] constexpr std::uint64_t scale64(std::uint64_t draw, std::uint64_t bound) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(draw) * bound) >> 64);
}

/// Lists shorter than this draw 32 bits a time, others 64: the bias stays below one in 2^16.
inline constexpr std::uint64_t wide_draw_degree = 1 << 16;

}  // namespace diskhop
