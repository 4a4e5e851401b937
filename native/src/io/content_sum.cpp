#include "diskhop/io/content_sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "diskhop/base/random.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

// Independent sums, so that processors compute several at once. One adds products of a word's halves, keyed by its
// position; its neighbour adds the word itself.
struct SumContent {
  const std::byte* content;
  std::uint64_t num_bytes;
  std::uint64_t& sum;

  static constexpr std::uint64_t lanes = 4;
  using Words [[gnu::vector_size(lanes * sizeof(std::uint64_t))]] = std::uint64_t;

  [[gnu::always_inline]] void operator()() const {
    Words sums{};
    Words keys{};
    for (std::uint64_t lane = 0; lane < lanes; ++lane) keys[lane] = mix64(lane + 1);
    const std::uint64_t whole_bytes = num_bytes / sizeof(Words) * sizeof(Words);
    for (std::uint64_t begin = 0; begin < whole_bytes; begin += sizeof(Words)) add(content + begin, sums, keys);
    if (whole_bytes < num_bytes) {
      std::array<std::byte, sizeof(Words)> rest{};
      std::memcpy(rest.data(), content + whole_bytes, num_bytes - whole_bytes);
      add(rest.data(), sums, keys);
    }
    sum = num_bytes;
    for (std::uint64_t lane = 0; lane < lanes; ++lane) sum = mix64(sum + sums[lane]);
  }

  [[gnu::always_inline]] static void add(const std::byte* from, Words& sums, Words& keys) {
    Words words;
    std::memcpy(&words, from, sizeof words);
    const Words mixed = words ^ keys;
    sums += (mixed & 0xffffffffU) * (mixed >> 32) + __builtin_shufflevector(words, words, 1, 0, 3, 2);
    keys += golden64;
  }
};

}  // namespace

std::uint64_t content_sum(const std::byte* content, std::uint64_t num_bytes) noexcept {
  static const InstructionSet instructions = best_instruction_set();
  std::uint64_t sum = 0;
  run_with(instructions, SumContent{content, num_bytes, sum});
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
