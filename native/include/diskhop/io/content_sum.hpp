// Checksums that detect damaged content. They do not protect against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace diskhop {

/// Differs for any single changed bit, and for more changed bits except with probability of about 2^-64. A partial last
/// word is padded with zeros.
[[nodiscard]] std::uint64_t content_sum(const std::byte* content, std::uint64_t num_bytes) noexcept;

inline constexpr std::uint64_t sum_page_bytes = 4096;

/// Sum of a file's pages from `first_page` on, modulo 2^64. The sums of parts add up, in any order, because a page
/// counts with its position. The last page may be short.
[[nodiscard]] std::uint64_t page_sums(std::span<const std::byte> content, std::uint64_t first_page) noexcept;

}  // namespace diskhop
