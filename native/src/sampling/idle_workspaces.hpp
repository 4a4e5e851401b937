// Workspaces of a sampler: as many as calls at once, each kept for the next batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace diskhop {

/// Threading: any number of callers.
template <typename Workspace>
class IdleWorkspaces {
 public:
  /// Returns a kept workspace, or a new one of make().
  template <typename Make>
  [[nodiscard]] std::unique_ptr<Workspace> take(Make make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return make();
  }

  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

  /// Returns the most that a member function returns.
  [[nodiscard]] std::size_t most(std::size_t (Workspace::*count)() const) const {
    const std::lock_guard lock(mutex_);
    std::size_t most = 0;
    for (const auto& workspace : idle_) most = std::max(most, ((*workspace).*count)());
    return most;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace diskhop
