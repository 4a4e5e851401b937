#include "sampling/draws.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "diskhop/base/random.hpp"
#include "simd/vector_draws.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace diskhop {
namespace {

// Up to this many draws, comparing with all earlier ones is faster than a set.
constexpr std::uint64_t max_compared_draws = 64;

/// Floyd's method: writes `count` distinct positions of a list to `picks`. `Draw` maps a draw's number and a bound to a
/// value below the bound.
template <typename Word, typename Draw>
void draw_by(const NeighborList<Word>& list, std::uint64_t count, Word* picks, Draw draw) {
  std::unordered_set<Word> drawn;
  const bool compares = count <= max_compared_draws;
  for (std::uint64_t number = 0; number < count; ++number) {
    const std::uint64_t last = list.degree - count + number;
    auto pick = static_cast<Word>(list.begin + draw(number, last + 1));
    const bool repeated = compares ? std::find(picks, picks + number, pick) != picks + number : drawn.contains(pick);
    if (repeated) pick = static_cast<Word>(list.begin + last);
    if (!compares) drawn.insert(pick);
    picks[number] = pick;
  }
}

}  // namespace

template <typename Word>
void draw_list_portable(const NeighborList<Word>& list, std::uint64_t fanout, std::uint64_t hop_key, Word* positions) {
  const std::uint64_t key = absorb(hop_key, list.number);
  if (list.degree <= fanout) {
    std::iota(positions, positions + list.degree, list.begin);
  } else if (list.degree < wide_draw_degree) {
    draw_by(list, fanout, positions, [key](std::uint64_t number, std::uint64_t bound) {
      return scale32(draw32(key, static_cast<std::uint32_t>(number)), static_cast<std::uint32_t>(bound));
    });
  } else {
    draw_by(list, fanout, positions,
            [key](std::uint64_t number, std::uint64_t bound) { return scale64(draw64(key, number), bound); });
  }
}

template void draw_list_portable<std::uint32_t>(const NeighborList<std::uint32_t>&, std::uint64_t, std::uint64_t,
                                                std::uint32_t*);
template void draw_list_portable<std::uint64_t>(const NeighborList<std::uint64_t>&, std::uint64_t, std::uint64_t,
                                                std::uint64_t*);

#if defined(__x86_64__)

namespace {

// GCC's vector types: their operators read as random.hpp does, and GCC's 512-bit intrinsics cause warnings.
using Lanes [[gnu::vector_size(64)]] = std::uint32_t;
using WideLanes [[gnu::vector_size(64)]] = std::uint64_t;

/// Draws sixteen positions at once from a list of less than wide_draw_degree; the first `fanout` count. A list that is
/// taken whole gives 0 .. 15. Repeats are resolved as a fixed point: a lane that repeats an earlier lane's draw takes
/// its last position, which may in turn repeat a later lane's draw. No lane is replaced wrongly meanwhile, and once
/// none repeats another, the result is that of sequential draws.
[[gnu::target("avx512f,avx512cd"), gnu::always_inline]] inline __m512i draw_lanes(std::uint32_t degree,
                                                                                  std::uint32_t fanout,
                                                                                  std::uint64_t node_key) {
  constexpr Lanes lanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Lanes words;
  draw_words(node_key, lanes, words);
  // scale32() to 0 .. last, the last positions being degree - fanout .. degree - 1.
  const Lanes lasts = degree - fanout + lanes;
  const auto even_words = reinterpret_cast<__m512i>(words);
  const auto even_bounds = reinterpret_cast<__m512i>(lasts + 1);
  const auto odd_words = reinterpret_cast<__m512i>(reinterpret_cast<WideLanes>(words) >> 32);
  const auto odd_bounds = reinterpret_cast<__m512i>(reinterpret_cast<WideLanes>(lasts + 1) >> 32);
  const auto even = reinterpret_cast<WideLanes>(_mm512_maskz_mul_epu32(0xff, even_words, even_bounds));
  const __m512i odd = _mm512_maskz_mul_epu32(0xff, odd_words, odd_bounds);
  // No branch on whole lists: they are as frequent as the others.
  const bool is_whole = degree <= fanout;
  const auto may_repeat = static_cast<__mmask16>(is_whole ? 0 : (1U << fanout) - 1);
  __m512i picks = _mm512_mask_mov_epi32(reinterpret_cast<__m512i>(even >> 32), 0xaaaa, odd);
  picks = _mm512_mask_mov_epi32(picks, static_cast<__mmask16>(is_whole ? 0xffff : 0), reinterpret_cast<__m512i>(lanes));
  __m512i earlier = _mm512_conflict_epi32(picks);
  __mmask16 repeats = _mm512_mask_test_epi32_mask(may_repeat, earlier, earlier);
  do {  // at least once: most lists that are not whole are short, and repeat
    picks = _mm512_mask_mov_epi32(picks, repeats, reinterpret_cast<__m512i>(lasts));
    earlier = _mm512_conflict_epi32(picks);
    repeats = _mm512_mask_test_epi32_mask(may_repeat, earlier, earlier);
  } while (repeats != 0);
  return picks;
}

}  // namespace

[[gnu::target("avx512f,avx512cd")]] void draw_list_vector(const NeighborList<std::uint32_t>& list, std::uint64_t fanout,
                                                          std::uint64_t hop_key, std::uint32_t* positions) {
  if (list.degree >= wide_draw_degree) return draw_list_portable(list, fanout, hop_key, positions);
  const __m512i picks = draw_lanes(list.degree, static_cast<std::uint32_t>(fanout), absorb(hop_key, list.number));
  _mm512_storeu_si512(positions, reinterpret_cast<__m512i>(list.begin + reinterpret_cast<Lanes>(picks)));
}

[[gnu::target("avx512f,avx512cd")]] void draw_list_vector(const NeighborList<std::uint64_t>& list, std::uint64_t fanout,
                                                          std::uint64_t hop_key, std::uint64_t* positions) {
  if (list.degree >= wide_draw_degree) return draw_list_portable(list, fanout, hop_key, positions);
  const auto degree = static_cast<std::uint32_t>(list.degree);
  const __m512i picks = draw_lanes(degree, static_cast<std::uint32_t>(fanout), absorb(hop_key, list.number));
  const __m512i low = _mm512_maskz_cvtepu32_epi64(0xff, _mm512_maskz_extracti64x4_epi64(0xf, picks, 0));
  const __m512i high = _mm512_maskz_cvtepu32_epi64(0xff, _mm512_maskz_extracti64x4_epi64(0xf, picks, 1));
  _mm512_storeu_si512(positions, reinterpret_cast<__m512i>(list.begin + reinterpret_cast<WideLanes>(low)));
  _mm512_storeu_si512(positions + 8, reinterpret_cast<__m512i>(list.begin + reinterpret_cast<WideLanes>(high)));
}

bool has_vector_draws() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd"); }

#else

void draw_list_vector(const NeighborList<std::uint32_t>& list, std::uint64_t fanout, std::uint64_t hop_key,
                      std::uint32_t* positions) {
  draw_list_portable(list, fanout, hop_key, positions);
}

void draw_list_vector(const NeighborList<std::uint64_t>& list, std::uint64_t fanout, std::uint64_t hop_key,
                      std::uint64_t* positions) {
  draw_list_portable(list, fanout, hop_key, positions);
}

bool has_vector_draws() { return false; }

#endif

}  // namespace diskhop
