// Sums by which content that was damaged on its way is told from what was written. Not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace diskhop {

/// Differs where a bit does, and where more do but for about one chance in 2^64; bytes up to a whole word count as
/// zeros.
[[nodiscard]] std::uint64_t content_sum(const std::byte* content, std::uint64_t num_bytes) noexcept;

inline constexpr std::uint64_t sum_page_bytes = 4096;

/// What pages of a file, from `first_page` on, add to the file's sum (modulo 2^64): they may come in any order. Each
/// counts with its place. The last may be short.
[[nodiscard]] std::uint64_t page_sums(std::span<const std::byte> content, std::uint64_t first_page) noexcept;

}  // namespace diskhop
