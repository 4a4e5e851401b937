// Counter-based random draws: a draw is a pure function of its key and its number, so the order of work cannot change
// it.
//
// These definitions are fixed: stored traces, packed layouts and published results depend on them. Golden values in the
// tests fail if one changes.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace diskhop {

/// Parts of a key that all draws of a batch share. Hop, edge type and node are added per draw (DESIGN, promise 1).
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

/// Inverse of mix64().
[[nodiscard]] constexpr std::uint64_t unmix64(std::uint64_t word) noexcept {
  word = (word ^ (word >> 31) ^ (word >> 62)) * 0x319642b2d24d8ec3;
  word = (word ^ (word >> 27) ^ (word >> 54)) * 0x96de1b173f119089;
  return word ^ (word >> 30) ^ (word >> 60);
}
static_assert(unmix64(mix64(0x0123456789abcdef)) == 0x0123456789abcdef);

/// Adds one part to a key. For a given key this is a bijection of the part.
[[nodiscard]] constexpr std::uint64_t absorb(std::uint64_t key, std::uint64_t part) noexcept {
  return mix64((key ^ part) + golden64);
}

/// Inverse of absorb(): the part that was added to `key`.
[[nodiscard]] constexpr std::uint64_t absorbed_part(std::uint64_t key, std::uint64_t absorbed) noexcept {
  return (unmix64(absorbed) - golden64) ^ key;
}

/// Key of one hop over one edge type: seed, purpose, epoch, batch, hop and edge type, absorbed in this order. A node's
/// key within it is absorb(hop key, node).
[[nodiscard]] constexpr std::uint64_t make_hop_key(const DrawKey& key, std::uint64_t hop,
                                                   std::uint64_t edge_type) noexcept {
  std::uint64_t folded = 0;
  for (const std::uint64_t part : {key.seed, key.purpose, key.epoch, key.batch, hop, edge_type}) {
    folded = absorb(folded, part);
  }
  return folded;
}

/// Draw number `counter` of a node, uniform over 32 bits (the finaliser of MurmurHash3, with the key's upper half added
/// midway). All arithmetic is 32 bits wide, so one AVX-512 register holds sixteen draws.
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

/// Maps a draw to 0 .. bound - 1 by multiplication. The bias is at most bound / 2^32 for 32 bits, bound / 2^64 for 64.
[[nodiscard]] constexpr std::uint32_t scale32(std::uint32_t draw, std::uint32_t bound) noexcept {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(draw) * bound) >> 32);
}

[[nodiscard]] constexpr std::uint64_t scale64(std::uint64_t draw, std::uint64_t bound) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(draw) * bound) >> 64);
}

/// Shorter lists draw 32 bits at a time, others 64: the bias stays below one in 2^16.
inline constexpr std::uint64_t wide_draw_degree = 1 << 16;

}  // namespace diskhop
