#include "hops/pass_staging.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "diskhop/hops/prefetch_distance.hpp"

namespace diskhop {
namespace {

// Bytes of a thread's sums, which stay in its caches.
constexpr std::uint64_t max_scratch_bytes = 16 << 10;
constexpr std::uint64_t max_chunk_rows = 256;
static_assert(most_edges_ahead * sizeof(std::int64_t) <= io_alignment);
// Pieces per load, at most: 1 MiB of 32-bit indices.
constexpr std::uint64_t max_load_pieces = 16;

StripPlaces places_in_strip(std::uint64_t strip_rows, std::uint64_t num_tiles, const PassFormula& formula,
                            const TableColumns& out) {
  StripPlaces places;
  places.scales = aligned_read_bytes((strip_rows + 1) * sizeof(std::int64_t));
  places.addend = places.scales;
  if (formula.row_scale != nullptr) places.addend += aligned_read_bytes(strip_rows * sizeof(float));
  places.output = places.addend;
  if (formula.addend) places.output += tiles_bytes(*formula.addend, num_tiles, strip_rows);
  places.num_bytes = places.output + tiles_bytes(out, num_tiles, strip_rows);
  return places;
}

}  // namespace

PassStaging::PassStaging(const Streaming& streaming, const ListFiles& lists, std::uint64_t num_columns,
                         const PassFormula& formula, const TableColumns& out, const ColdWindow& window)
    : num_columns_(num_columns) {
  const std::uint64_t num_tiles = num_columns / tile_columns;
  const std::uint64_t row_bytes = num_columns * sizeof(float);
  chunk_rows_ = std::clamp<std::uint64_t>(max_scratch_bytes / row_bytes, 4, max_chunk_rows);
  const std::uint64_t scratch_bytes = whole_pages(streaming.num_threads * chunk_rows_ * row_bytes);
  const auto strip_bytes = [&](std::uint64_t strip_rows) {
    return places_in_strip(strip_rows, num_tiles, formula, out).num_bytes;
  };
  // One page more than the read of a piece: indices are read this far ahead.
  const auto indices_bytes = [&](std::uint64_t num_pieces) {
    return aligned_read_bytes(num_pieces * piece_edges * lists.index_bytes) + io_alignment;
  };
  const auto load_bytes = [&](std::uint64_t num_pieces) {
    const std::uint64_t weights_bytes = aligned_read_bytes(num_pieces * piece_edges * sizeof(float));
    return indices_bytes(num_pieces) + (lists.weights == nullptr ? 0 : weights_bytes);
  };
  const auto partial_bytes = [&](std::uint64_t num_pieces) { return num_pieces * 2 * row_bytes; };

  const std::uint64_t fixed_bytes = scratch_bytes + io_alignment;  // partial sums are padded to whole pages
  const std::uint64_t least_load_bytes = load_bytes(1) + partial_bytes(1);
  const std::uint64_t least_bytes = fixed_bytes + strip_bytes(min_strip_rows) + least_load_bytes;
  const std::uint64_t staging_bytes = streaming.staging.size() / io_alignment * io_alignment;
  if (staging_bytes < least_bytes) {
    throw std::invalid_argument("a pass over " + std::to_string(num_columns) + " columns takes at least " +
                                std::to_string(least_bytes) + " bytes of staging, got " +
                                std::to_string(streaming.staging.size()));
  }
  // Half each, or the rest if the other needs more than half.
  const std::uint64_t shared_bytes = staging_bytes - fixed_bytes;
  const std::uint64_t for_strips =
      std::max(std::min(shared_bytes / 2, shared_bytes - least_load_bytes), strip_bytes(min_strip_rows));
  strips_ = choose_strips("a pass", for_strips, strip_bytes);
  places_ = places_in_strip(strips_.num_rows, num_tiles, formula, out);
  const std::uint64_t for_loads = shared_bytes - strips_.num_slots * places_.num_bytes;
  load_pieces_ = max_load_pieces;
  const auto slots_of = [&](std::uint64_t num_pieces) {
    return std::min(for_loads / (load_bytes(num_pieces) + partial_bytes(num_pieces)), window.slots_of(num_pieces));
  };
  while (load_pieces_ > 1 && slots_of(load_pieces_) < 4) load_pieces_ /= 2;
  load_slots_ = slots_of(load_pieces_);
  if (load_slots_ == 0) throw std::invalid_argument("a pass: the block has no room for the cold edges of a piece");
  load_bytes_ = load_bytes(load_pieces_);
  weights_place_ = indices_bytes(load_pieces_);

  first_strip_ = streaming.staging.data();
  first_load_ = first_strip_ + strips_.num_slots * places_.num_bytes;
  scratch_ = first_load_ + load_slots_ * load_bytes_;
  partial_sums_ = reinterpret_cast<float*>(scratch_ + scratch_bytes);
}

std::byte* PassStaging::strip(std::uint64_t slot) const noexcept { return first_strip_ + slot * places_.num_bytes; }

std::byte* PassStaging::load(std::uint64_t slot) const noexcept { return first_load_ + slot * load_bytes_; }

std::byte* PassStaging::load_weights(std::uint64_t slot) const noexcept { return load(slot) + weights_place_; }

float* PassStaging::scratch(std::uint64_t lane) const noexcept {
  return reinterpret_cast<float*>(scratch_) + lane * chunk_rows_ * num_columns_;
}

float* PassStaging::partial_sums(std::uint64_t piece) const noexcept {
  return partial_sums_ + piece % (load_pieces_ * load_slots_) * 2 * num_columns_;
}

}  // namespace diskhop
