// Shared by the tests of I/O: a scratch folder, known bytes, and the engines that this machine allows.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/io/engine.hpp"

namespace diskhop::testing {

/// A folder that is removed with the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "diskhop-test-XXXXXX").string();
    check(::mkdtemp(pattern.data()) != nullptr, "a scratch folder can be made");
    path_ = pattern;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ScratchFolder(ScratchFolder&&) = delete;
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// Byte at an offset: neighbours, blocks and pages all differ.
inline std::byte known_byte(std::uint64_t offset) {
  return static_cast<std::byte>((offset * 0x9e3779b97f4a7c15U) >> 56);
}

inline std::vector<std::byte> known_bytes(std::uint64_t offset, std::uint64_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (std::uint64_t i = 0; i < num_bytes; ++i) bytes[i] = known_byte(offset + i);
  return bytes;
}

inline void write_known_file(const std::string& path, std::uint64_t num_bytes) {
  const std::vector<std::byte> bytes = known_bytes(0, num_bytes);
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  check(stream.good(), "the test file could be written");
}

inline std::vector<std::byte> file_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline std::vector<std::string> engine_names() {
  const std::string reason = why_no_uring();
  if (reason.empty()) return {"threads", "uring"};
  std::printf("engine uring is not tested here: %s\n", reason.c_str());
  return {"threads"};
}

/// Makes an injector; without rules it only counts.
inline std::shared_ptr<FaultInjector> injector_with(std::vector<FaultRule> rules) {
  return std::make_shared<FaultInjector>(std::move(rules), 7);
}

}  // namespace diskhop::testing
