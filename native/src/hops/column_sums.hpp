// Sums of a few columns in registers.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "hops/tile_values.hpp"
#include "simd/vectors.hpp"

namespace diskhop {

inline constexpr std::size_t line_bytes = 64;
inline constexpr std::size_t quad_floats = 4;
/// Columns that are summed at a time, in quads: as many as registers hold, including AVX2's 16.
inline constexpr std::size_t max_quads = 16;
/// Edges per run: a run is added edge by edge, then the runs' sums are added. Rounding errors grow with the longer of
/// both, so they are smallest if a piece has as many runs as a run has edges.
inline constexpr std::ptrdiff_t run_edges = 128;
static_assert(run_edges * run_edges == static_cast<std::ptrdiff_t>(piece_edges));

/// Sums of num_quads * 4 columns, in whole registers: part of one would be loaded by way of the stack.
template <std::size_t lanes, std::size_t num_quads>
struct ColumnSums {
  static constexpr std::size_t register_quads = lanes / quad_floats;
  static constexpr bool has_octet = num_quads % register_quads >= 2;
  static constexpr bool has_quad = register_quads > 1 && num_quads % 2 == 1;
  std::array<Register<lanes>, num_quads / register_quads> wide{};
  Register<8> octet{};  // where a register has sixteen floats
  Quad quad{};

  [[gnu::always_inline]] void add(const float* from) {
    for (Register<lanes>& sum : wide) add_values(sum, from);
    if constexpr (has_octet) add_values(octet, from);
    if constexpr (has_quad) add_values(quad, from);
  }
  [[gnu::always_inline]] void add_times(const float* from, float factor) {
    for (Register<lanes>& sum : wide) add_products(sum, from, factor);
    if constexpr (has_octet) add_products(octet, from, factor);
    if constexpr (has_quad) add_products(quad, from, factor);
  }
  [[gnu::always_inline]] void add(const ColumnSums& other) {
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] += other.wide[i];
    if constexpr (has_octet) octet += other.octet;
    if constexpr (has_quad) quad += other.quad;
  }
  [[gnu::always_inline]] void put(float* to) const {
    for (const Register<lanes>& sum : wide) put_values(to, sum);
    if constexpr (has_octet) put_values(to, octet);
    if constexpr (has_quad) put_values(to, quad);
  }

 private:
  template <typename Vector>
  [[gnu::always_inline]] static void add_values(Vector& sum, const float*& from) {
    Vector values;
    std::memcpy(&values, from, sizeof values);
    sum += values;
    from += sizeof(Vector) / sizeof(float);
  }
  template <typename Vector>
  [[gnu::always_inline]] static void add_products(Vector& sum, const float*& from, float factor) {
    Vector values;
    std::memcpy(&values, from, sizeof values);
    sum += values * factor;
    from += sizeof(Vector) / sizeof(float);
  }
  template <typename Vector>
  [[gnu::always_inline]] static void put_values(float*& to, const Vector& sum) {
    std::memcpy(to, &sum, sizeof sum);
    to += sizeof(Vector) / sizeof(float);
  }
};

/// Prefetches into the second-level cache: the first-level cache has far fewer lines in flight, and waiting for one
/// took most of a pass. The place is a number: an index that is not verified yet may lead anywhere.
[[gnu::always_inline]] inline void prefetch_line(std::uintptr_t place) {
  constexpr int for_reading = 0;
  constexpr int second_level = 2;
  __builtin_prefetch(reinterpret_cast<const void*>(place), for_reading, second_level);
}

/// Prefetches the cache lines of num_bytes of a block's row.
[[gnu::always_inline]] inline void prefetch_columns(std::uintptr_t row, std::size_t num_bytes) {
  for (std::size_t byte = 0; byte < num_bytes; byte += line_bytes) prefetch_line(row + byte);
  // Rows begin at multiples of a quad and of their own length: only such lengths may reach into one more line.
  if (num_bytes % line_bytes == 3 * sizeof(Quad)) prefetch_line(row + num_bytes - 1);
}

}  // namespace diskhop
