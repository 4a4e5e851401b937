#include "diskhop/content_sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "diskhop/random.hpp"

namespace diskhop {

// Sums side by side, so that any processor takes several at once: one of products of a word's halves under a key of its
// place, its neighbour of the word itself.
std::uint64_t content_sum(const std::byte* content, std::uint64_t num_bytes) noexcept {
  constexpr std::uint64_t lanes = 4;
  std::array<std::uint64_t, lanes> sums{};
  std::array<std::uint64_t, lanes> keys{};
  for (std::uint64_t lane = 0; lane < lanes; ++lane) keys[lane] = mix64(lane + 1);
  const auto add_row = [&](const std::byte* row) {
    std::array<std::uint64_t, lanes> words;
    std::memcpy(words.data(), row, sizeof(words));
    for (std::uint64_t lane = 0; lane < lanes; ++lane) {
      const std::uint64_t mixed = words[lane] ^ keys[lane];
      sums[lane] += (mixed & 0xffffffffU) * (mixed >> 32);
      sums[lane ^ 1] += words[lane];
      keys[lane] += golden64;
    }
  };
  constexpr std::uint64_t row_bytes = lanes * sizeof(std::uint64_t);
  const std::uint64_t whole_bytes = num_bytes / row_bytes * row_bytes;
  for (std::uint64_t begin = 0; begin < whole_bytes; begin += row_bytes) add_row(content + begin);
  if (whole_bytes < num_bytes) {
    std::array<std::byte, row_bytes> rest{};
    std::memcpy(rest.data(), content + whole_bytes, num_bytes - whole_bytes);
    add_row(rest.data());
  }
  std::uint64_t sum = num_bytes;
  for (const std::uint64_t each : sums) sum = mix64(sum + each);
  return sum;
}

std::uint64_t page_sums(std::span<const std::byte> content, std::uint64_t first_page) noexcept {
  std::uint64_t sum = 0;
  for (std::uint64_t begin = 0, page = first_page; begin < content.size(); begin += sum_page_bytes, ++page) {
    const std::uint64_t num_bytes = std::min<std::uint64_t>(sum_page_bytes, content.size() - begin);
    sum += mix64(content_sum(content.data() + begin, num_bytes) + mix64(page + 1));
  }
  return sum;
}

}  // namespace diskhop
