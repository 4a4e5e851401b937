// What a run reached: edges between blocks of code with how often, and numbers that were compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace diskhop::fuzz {

using Bytes = std::vector<std::uint8_t>;

/// Two different numbers that a run compared, of 1, 2, 4 or 8 bytes.
struct Compared {
  std::uint64_t left = 0;
  std::uint64_t right = 0;
  std::size_t num_bytes = 0;
};

void begin_run();
void end_run();
/// Whether the last run had a feature that none before it had. Asked once a run.
[[nodiscard]] bool has_new_features();
[[nodiscard]] std::uint64_t num_features();
/// Some of the pairs that runs compared.
[[nodiscard]] std::span<const Compared> compared();

/// FNV-1a.
[[nodiscard]] inline std::uint64_t hash_bytes(const Bytes& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace diskhop::fuzz
