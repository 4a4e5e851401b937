// A block as Python holds it.
#pragma once

#include "diskhop/hops/prefetch_distance.hpp"
#include "diskhop/hops/propagate.hpp"

namespace diskhop {

/// Columns in memory, and what calls have learned about the prefetch distances of their rows.
struct ColumnBlock {
  Block block;
  PrefetchDistance sums_ahead{};
  PrefetchDistance attended_ahead{};
};

}  // namespace diskhop
