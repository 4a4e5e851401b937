// A table of rows to read, and ids to request.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/io/engine.hpp"
#include "diskhop/rows/rows.hpp"

namespace diskhop::testing {

/// A table on disk, and in memory to compare with. The file is removed with it.
class TableOnDisk {
 public:
  TableOnDisk(std::uint64_t num_rows, std::uint64_t row_bytes, std::uint64_t row_stride)
      : layout{.num_rows = num_rows, .row_bytes = row_bytes, .row_stride = row_stride}, content(num_rows * row_stride) {
    for (std::size_t byte = 0; byte < content.size(); ++byte) {
      content[byte] = static_cast<char>(draw32(row_bytes, static_cast<std::uint32_t>(byte)));
    }
    std::string name = "rows-XXXXXX";
    const int descriptor = ::mkstemp(name.data());
    check(descriptor >= 0, "a file can be made in the working directory");
    ::close(descriptor);
    path = name;
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ~TableOnDisk() { ::unlink(path.c_str()); }
  TableOnDisk(const TableOnDisk&) = delete;
  TableOnDisk& operator=(const TableOnDisk&) = delete;

  [[nodiscard]] std::vector<char> rows(const std::vector<std::int64_t>& ids) const {
    std::vector<char> expected;
    for (const std::int64_t id : ids) {
      const auto row = content.begin() + static_cast<std::ptrdiff_t>(id * layout.row_stride);
      expected.insert(expected.end(), row, row + static_cast<std::ptrdiff_t>(layout.row_bytes));
    }
    return expected;
  }

  TableLayout layout;
  std::vector<char> content;
  std::string path;
};

inline std::vector<std::int64_t> draw_ids(std::uint64_t key, std::size_t count, std::uint64_t num_rows) {
  std::vector<std::int64_t> ids;
  for (std::size_t place = 0; place < count; ++place) {
    ids.push_back(static_cast<std::int64_t>(scale64(draw64(key, place), num_rows)));
  }
  return ids;
}

inline std::vector<std::string> engine_names() {
  return why_no_uring().empty() ? std::vector<std::string>{"uring", "threads"} : std::vector<std::string>{"threads"};
}

}  // namespace diskhop::testing
