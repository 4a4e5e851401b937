// Rows with values that are infinite or NaN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace diskhop {

/// Counts such rows and keeps the first. Threading: any thread adds some, each row once.
class BadRows {
 public:
  void add(std::vector<std::int64_t> rows) {
    if (rows.empty()) return;
    const std::lock_guard lock(mutex_);
    num_rows_ += rows.size();
    first_.insert(first_.end(), rows.begin(), rows.end());
    std::ranges::sort(first_);
    first_.resize(std::min(first_.size(), most_named));
  }
  [[nodiscard]] std::uint64_t num_rows() const noexcept { return num_rows_; }
  [[nodiscard]] const std::vector<std::int64_t>& first() const noexcept { return first_; }

 private:
  static constexpr std::size_t most_named = 5;
  std::mutex mutex_;
  std::uint64_t num_rows_ = 0;
  std::vector<std::int64_t> first_;
};

}  // namespace diskhop
