// Division of a pass's staging, and the positions of its parts.
//
// Rows pass through in *strips* (see table_strips.hpp), each with its part of indptr, scales, addend and output; edges
// pass through in *loads* of a few pieces.
#pragma once

#include <cstdint>
#include <span>

#include "diskhop/hops/propagate.hpp"
#include "hops/cold_edges.hpp"
#include "hops/slot_ring.hpp"
#include "hops/table_strips.hpp"

namespace diskhop {

/// Bytes of a strip's parts, and their positions in its slot.
struct StripPlaces {
  std::uint64_t indptr = 0;
  std::uint64_t scales = 0;
  std::uint64_t addend = 0;
  std::uint64_t output = 0;
  std::uint64_t num_bytes = 0;
};

class PassStaging {
 public:
  /// Throws std::invalid_argument if staging, or the window, is too small.
  PassStaging(const Streaming& streaming, const ListFiles& lists, std::uint64_t num_columns, const PassFormula& formula,
              const TableColumns& out, const ColdWindow& window);

  [[nodiscard]] std::uint64_t strip_rows() const noexcept { return strips_.num_rows; }
  [[nodiscard]] std::uint64_t strip_slots() const noexcept { return strips_.num_slots; }
  [[nodiscard]] std::uint64_t load_pieces() const noexcept { return load_pieces_; }
  [[nodiscard]] std::uint64_t load_slots() const noexcept { return load_slots_; }
  [[nodiscard]] const StripPlaces& places() const noexcept { return places_; }
  /// Rows that a thread sums before it finishes them.
  [[nodiscard]] std::uint64_t chunk_rows() const noexcept { return chunk_rows_; }

  [[nodiscard]] std::byte* strip(std::uint64_t slot) const noexcept;
  [[nodiscard]] std::byte* load(std::uint64_t slot) const noexcept;
  /// Memory of a load's weights, within that of the load.
  [[nodiscard]] std::byte* load_weights(std::uint64_t slot) const noexcept;
  /// Memory of a thread for the sums of a chunk.
  [[nodiscard]] float* scratch(std::uint64_t lane) const noexcept;
  /// Two partial sums of rows that continue beyond the piece: its first row's and its last row's.
  [[nodiscard]] float* partial_sums(std::uint64_t piece) const noexcept;

 private:
  StripPlaces places_;
  StripSizes strips_;
  std::uint64_t load_pieces_ = 0;
  std::uint64_t load_slots_ = 0;
  std::uint64_t load_bytes_ = 0;
  std::uint64_t weights_place_ = 0;  // in a load
  std::uint64_t chunk_rows_ = 0;
  std::uint64_t num_columns_ = 0;
  std::byte* scratch_ = nullptr;
  std::byte* first_strip_ = nullptr;
  std::byte* first_load_ = nullptr;
  float* partial_sums_ = nullptr;
};

}  // namespace diskhop
