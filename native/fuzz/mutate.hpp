// Inputs made from others: bytes changed, numbers set to odd values, parts copied, cut, or joined to another input's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "coverage.hpp"

namespace diskhop::fuzz {

class Mutator {
 public:
  Mutator(std::uint64_t seed, std::size_t most_bytes) : random_(seed), most_bytes_(most_bytes) {}

  /// Makes an input from those of the corpus, the later ones more often.
  [[nodiscard]] Bytes next(const std::vector<Bytes>& corpus) {
    const std::size_t number =
        below(2) == 0 ? below(corpus.size()) : corpus.size() - 1 - below((corpus.size() + 3) / 4);
    Bytes input = corpus[number];
    for (std::size_t left = std::size_t{1} << below(5); left > 0; --left) change(input, corpus);
    input.resize(std::min(input.size(), most_bytes_));
    return input;
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  std::uint64_t odd_number() {
    const std::uint64_t power = std::uint64_t{1} << below(64);
    const std::array<std::uint64_t, 6> numbers{power, power - 1, power + 1, 0, ~std::uint64_t{0}, -power};
    return numbers[below(numbers.size())];
  }

  void change(Bytes& input, const std::vector<Bytes>& corpus) {
    if (input.empty()) return insert_random(input);
    const std::size_t place = below(input.size());
    switch (below(10)) {
      case 0:
        input[place] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        input[place] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        input[place] = static_cast<std::uint8_t>(input[place] + below(17) - 8);
        break;
      case 3:
        put(input, place, odd_number(), std::size_t{1} << below(4));
        break;
      case 4:
        insert_random(input);
        break;
      case 5:
        input.erase(input.begin() + static_cast<std::ptrdiff_t>(place),
                    input.begin() + static_cast<std::ptrdiff_t>(place + 1 + below(input.size() - place)));
        break;
      case 6: {
        const Bytes part = some_of(input);
        insert(input, place, part);
        break;
      }
      case 7: {
        const Bytes part = some_of(corpus[below(corpus.size())]);
        insert(input, place, part);
        break;
      }
      default:
        put_compared(input);
    }
  }

  void insert_random(Bytes& input) {
    Bytes part(1 + below(16));
    for (std::uint8_t& byte : part) byte = static_cast<std::uint8_t>(random_());
    insert(input, below(input.size() + 1), part);
  }

  void insert(Bytes& input, std::size_t place, const Bytes& part) {
    if (input.size() + part.size() > most_bytes_) return;
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(place), part.begin(), part.end());
  }

  Bytes some_of(const Bytes& from) {
    if (from.empty()) return {};
    const std::size_t begin = below(from.size());
    const std::size_t count = 1 + below(std::min<std::size_t>(from.size() - begin, 64));
    return {from.begin() + static_cast<std::ptrdiff_t>(begin),
            from.begin() + static_cast<std::ptrdiff_t>(begin + count)};
  }

  static void put(Bytes& input, std::size_t place, std::uint64_t number, std::size_t num_bytes) {
    if (place + num_bytes > input.size()) input.resize(place + num_bytes);
    std::memcpy(input.data() + place, &number, num_bytes);
  }

  /// Replaces a number that the code compared by what it was compared with.
  void put_compared(Bytes& input) {
    const Compared pair = compared()[below(compared().size())];
    if (pair.num_bytes == 0) return;
    const bool swaps = below(2) == 0;
    const std::uint64_t found = swaps ? pair.right : pair.left;
    const std::uint64_t other = (swaps ? pair.left : pair.right) + below(3) - 1;
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&found);
    // Small numbers are read from fewer bytes than they are compared in.
    const std::size_t num_bytes = found < 256 && below(2) == 0 ? 1 : pair.num_bytes;
    const auto place = std::search(input.begin(), input.end(), bytes, bytes + num_bytes);
    if (place != input.end()) put(input, static_cast<std::size_t>(place - input.begin()), other, num_bytes);
  }

  std::mt19937_64 random_;
  std::size_t most_bytes_;
};

}  // namespace diskhop::fuzz
