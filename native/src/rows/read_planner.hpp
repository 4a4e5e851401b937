// plan_reads() for ids that arrive in parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diskhop/rows/rows.hpp"
#include "rows/read_groups.hpp"

namespace diskhop {

/// Plans reads part by part. All parts together give the reads, and the errors, of plan_reads(). Threading: one thread.
class ReadPlanner {
 public:
  ReadPlanner(const TableLayout& layout, std::int64_t max_gap_bytes, std::uint64_t alignment,
              std::uint64_t max_read_bytes);
  /// Appends the reads that no later id can extend.
  void add(std::span<const std::int64_t> sorted_ids, std::vector<PlannedRead>& reads);
  /// Appends the last read: no more ids follow.
  void finish(std::vector<PlannedRead>& reads);

 private:
  struct OpenRead {
    Extent extent{};
    std::uint64_t first_wanted = 0;
    std::uint64_t num_wanted = 0;  // 0 before the first id
  };
  void close(const OpenRead& read, std::vector<PlannedRead>& reads) const;

  CoalescingRule rule_;
  bool merges_;
  OpenRead open_;
  std::int64_t previous_id_ = -1;
};

}  // namespace diskhop
