// Takes values of all kinds from the bytes of a fuzz input, and puts bytes in files in memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "diskhop/io/engine.hpp"

namespace diskhop::fuzz {

/// The bytes of an input, taken from the front. What is missing is 0. Two values that are taken in one call belong in
/// statements of their own: compilers choose the order of arguments, and an input must mean the same with each.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t num_bytes) : rest_(data, num_bytes) {}

  template <typename Value>
  [[nodiscard]] Value take() {
    Value value{};
    const std::size_t count = std::min(sizeof(Value), rest_.size());
    if (count > 0) std::memcpy(static_cast<void*>(&value), rest_.data(), count);
    rest_ = rest_.subspan(count);
    return value;
  }
  [[nodiscard]] bool flag() { return (take<std::uint8_t>() & 1U) != 0; }
  /// A number from 0 to count - 1, from one byte, or two if count is above 256.
  [[nodiscard]] std::size_t below(std::size_t count) {
    return (count > 256 ? take<std::uint16_t>() : take<std::uint8_t>()) % count;
  }
  /// Mostly a number below `limit`, sometimes any.
  [[nodiscard]] std::uint64_t number(std::size_t limit) {
    return take<std::uint8_t>() < 16 ? take<std::uint64_t>() : below(limit);
  }
  [[nodiscard]] bool is_empty() const { return rest_.empty(); }
  [[nodiscard]] std::span<const std::uint8_t> rest() const { return rest_; }

  /// Numbers below `limit`, then a few of them replaced by any.
  template <typename Value>
  [[nodiscard]] std::vector<Value> ids(std::size_t count, std::size_t limit) {
    std::vector<Value> values(count);
    for (Value& value : values) value = static_cast<Value>(below(std::max<std::size_t>(1, limit)));
    replace_some(values);
    return values;
  }
  /// Offsets of `count` lists that follow each other, then a few of them replaced by any.
  template <typename Value = std::int64_t>
  [[nodiscard]] std::vector<Value> offsets(std::size_t count, std::size_t most_items) {
    std::vector<Value> values{0};
    for (std::size_t list = 0; list < count; ++list) {
      values.push_back(static_cast<Value>(values.back() + static_cast<Value>(below(most_items + 1))));
    }
    replace_some(values);
    return values;
  }
  template <typename Value>
  [[nodiscard]] std::vector<Value> values(std::size_t count) {
    std::vector<Value> all(count);
    for (Value& value : all) value = take<Value>();
    return all;
  }

 private:
  template <typename Value>
  void replace_some(std::vector<Value>& values) {
    for (std::size_t left = below(8); left >= 5 && !values.empty(); --left) {
      const std::size_t place = below(values.size());
      values[place] = take<Value>();
    }
  }

  std::span<const std::uint8_t> rest_;
};

/// A file without a folder, which can be opened by its path while this exists.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 ||
        ::write(descriptor_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      std::perror("a file in memory");
      std::_Exit(2);
    }
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  template <typename Value>
  explicit MemoryFile(const std::vector<Value>& values) : MemoryFile(std::as_bytes(std::span(values))) {}
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  MemoryFile(MemoryFile&&) = delete;
  MemoryFile& operator=(MemoryFile&&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

/// The engine of all runs.
inline Engine& engine() {
  static const std::unique_ptr<Engine> made = make_engine("threads", 2, nullptr);
  return *made;
}

/// Calls an action that may refuse its input by these errors. Every other one ends the process: a finding.
template <typename... Errors, typename Action>
void refuse_or(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    if ((... || (dynamic_cast<const Errors*>(&error) != nullptr))) return;
    std::fprintf(stderr, "an error of another kind: %s\n", error.what());
    std::abort();
  }
}

/// Ends the process if a promise does not hold.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", promise);
  std::abort();
}

}  // namespace diskhop::fuzz
