// Receives the calls that GCC puts into code built with -fsanitize-coverage=trace-pc,trace-cmp.
#include "coverage.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace diskhop::fuzz {
namespace {

constexpr std::size_t num_edges = 1 << 16;
// Threads of the target count in it, too, without locks: a lost count is of no importance.
std::array<std::uint8_t, num_edges> counts{};
std::array<std::uint8_t, num_edges> known{};  // one bit per class of counts
std::array<Compared, 512> pairs{};
std::size_t next_pair = 0;
std::uint64_t features = 0;
bool is_running = false;
thread_local std::uintptr_t last_place = 0;

/// Counts in classes 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127 and more, each a bit.
std::uint8_t class_of(std::uint8_t count) {
  if (count <= 3) return static_cast<std::uint8_t>(1U << (count - 1));
  if (count >= 128) return 128;
  return static_cast<std::uint8_t>(1U << std::min(6U, static_cast<unsigned>(std::bit_width(count))));
}

void note_edge(std::uintptr_t address) {
  if (!is_running) return;
  // Relative to this program, which is loaded elsewhere each time.
  const std::uintptr_t place = (address - reinterpret_cast<std::uintptr_t>(&class_of)) * 0x9e3779b97f4a7c15 >> 48;
  std::uint8_t& count = counts[(place ^ last_place) % num_edges];
  if (count < 255) ++count;
  last_place = place >> 1;
}

void note_compared(std::uint64_t left, std::uint64_t right, std::size_t num_bytes) {
  if (!is_running || left == right) return;
  pairs[next_pair] = {left, right, num_bytes};
  next_pair = (next_pair + 1) % pairs.size();
}

}  // namespace

void begin_run() {
  counts.fill(0);
  last_place = 0;
  is_running = true;
}

void end_run() { is_running = false; }

bool has_new_features() {
  const std::uint64_t before = features;
  for (std::size_t first = 0; first < num_edges; first += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, counts.data() + first, 8);
    if (eight == 0) continue;
    for (std::size_t edge = first; edge < first + 8; ++edge) {
      if (counts[edge] == 0) continue;
      const std::uint8_t found = class_of(counts[edge]);
      features += (known[edge] & found) == 0 ? 1 : 0;
      known[edge] |= found;
    }
  }
  return features > before;
}

std::uint64_t num_features() { return features; }

std::span<const Compared> compared() { return pairs; }

}  // namespace diskhop::fuzz

// NOLINTBEGIN: the compiler gives these names.
extern "C" {
void __sanitizer_cov_trace_pc() {
  diskhop::fuzz::note_edge(reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
}
void __sanitizer_cov_trace_cmp1(std::uint8_t left, std::uint8_t right) { diskhop::fuzz::note_compared(left, right, 1); }
void __sanitizer_cov_trace_cmp2(std::uint16_t left, std::uint16_t right) {
  diskhop::fuzz::note_compared(left, right, 2);
}
void __sanitizer_cov_trace_cmp4(std::uint32_t left, std::uint32_t right) {
  diskhop::fuzz::note_compared(left, right, 4);
}
void __sanitizer_cov_trace_cmp8(std::uint64_t left, std::uint64_t right) {
  diskhop::fuzz::note_compared(left, right, 8);
}
void __sanitizer_cov_trace_const_cmp1(std::uint8_t left, std::uint8_t right) {
  diskhop::fuzz::note_compared(left, right, 1);
}
void __sanitizer_cov_trace_const_cmp2(std::uint16_t left, std::uint16_t right) {
  diskhop::fuzz::note_compared(left, right, 2);
}
void __sanitizer_cov_trace_const_cmp4(std::uint32_t left, std::uint32_t right) {
  diskhop::fuzz::note_compared(left, right, 4);
}
void __sanitizer_cov_trace_const_cmp8(std::uint64_t left, std::uint64_t right) {
  diskhop::fuzz::note_compared(left, right, 8);
}
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}
void __sanitizer_cov_trace_switch(std::uint64_t value, std::uint64_t* cases) {
  for (std::uint64_t i = 0; i < cases[0]; ++i) diskhop::fuzz::note_compared(value, cases[2 + i], cases[1] / 8);
}
}
// NOLINTEND
