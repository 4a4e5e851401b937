// Files: what may be opened, what an error says, which transfers are direct.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "diskhop/io/buffer.hpp"
#include "diskhop/io/file.hpp"
#include "io/alignment.hpp"
#include "io_testing.hpp"

using diskhop::Alignment;
using diskhop::Buffer;
using diskhop::direct_alignment;
using diskhop::File;
using diskhop::FileMode;
using diskhop::IoError;
using diskhop::tried_alignment;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::file_bytes;
using diskhop::testing::known_bytes;
using diskhop::testing::ScratchFolder;
using diskhop::testing::write_known_file;

namespace {

IoError error_opening(const std::string& path, FileMode mode) {
  const auto error = check_throws<IoError>([&] { const File file(path, mode, true); }, path + " is refused");
  check(std::string(error.what()).starts_with(path + ": "), "an error starts with the path");
  check(std::string(error.what()).find("Success") == std::string::npos, error.what());
  return error;
}

void only_regular_files_are_opened(const ScratchFolder& folder) {
  check(error_opening(folder.file("missing"), FileMode::read).code().value() == ENOENT, "a missing file");
  check(error_opening(folder.file("no/such/folder"), FileMode::write).code().value() == ENOENT, "a missing folder");
  error_opening(folder.file(""), FileMode::read);
  error_opening(folder.file(""), FileMode::write);
  const std::string pipe = folder.file("pipe");
  check(::mkfifo(pipe.c_str(), 0600) == 0, "a pipe can be made");
  error_opening(pipe, FileMode::read);  // must not wait for the other end
}

void writing_never_truncates(const ScratchFolder& folder) {
  const std::string path = folder.file("kept");
  write_known_file(path, 1000);
  check(File(path, FileMode::write, true).num_bytes() == 1000, "the length is the file's");
  check(file_bytes(path) == known_bytes(0, 1000), "opening for writing keeps what is there");
  check(File(folder.file("new"), FileMode::write, true).num_bytes() == 0, "a new file is made, empty");
}

void only_aligned_transfers_go_direct(const ScratchFolder& folder) {
  const std::string path = folder.file("aligned");
  write_known_file(path, 1 << 16);
  const Buffer buffer(1 << 16);
  const File buffered(path, FileMode::read, false);
  check(!buffered.direct() && buffered.offset_alignment() == 1, "direct I/O can be forbidden");
  const File file(path, FileMode::read, true);
  if (!file.direct()) return;  // the file system refuses it
  const std::uint32_t step = file.offset_alignment();
  const int direct = file.descriptor_for(step, step, buffer.data());
  check(direct != buffered.descriptor_for(step, step, buffer.data()), "two descriptors, two files");
  check(direct == file.descriptor_for(0, 4 * step, buffer.data()), "aligned transfers share the direct descriptor");
  check(direct != file.descriptor_for(step + 1, step, buffer.data()), "an unaligned offset is buffered");
  check(direct != file.descriptor_for(step, step - 1, buffer.data()), "an unaligned length is buffered");
  if (file.memory_alignment() == 1) return;
  check(direct != file.descriptor_for(step, step, buffer.data() + 1), "an unaligned buffer is buffered");
}

/// The path for kernels before 6.1, which do not report alignments.
void a_tried_alignment_is_one_that_reads_accept(const ScratchFolder& folder) {
  const std::string path = folder.file("tried");
  write_known_file(path, 0);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  if (descriptor < 0) return;  // the file system refuses direct I/O
  const Alignment unproven = tried_alignment(descriptor);
  check(unproven.offset == 4096 && unproven.memory == 4096, "an empty file proves nothing: the largest is assumed");
  write_known_file(path, 1 << 16);
  const Alignment proven = tried_alignment(descriptor);
  check(proven.offset == 512 || proven.offset == 4096, "a read finds it out");
  check(proven.offset >= direct_alignment(descriptor).offset, "and it is no smaller than what the kernel reports");
  ::close(descriptor);
}

void memory_is_not_read_directly() {
  std::string path = "/dev/shm/diskhop-test-XXXXXX";
  const int descriptor = ::mkstemp(path.data());
  if (descriptor < 0) return;  // no such file system here
  struct statfs status = {};
  if (::fstatfs(descriptor, &status) == 0 && status.f_type == TMPFS_MAGIC) {
    const File file(path, FileMode::read, true);
    check(!file.direct() && file.offset_alignment() == 1, "the page cache is all there is");
  }
  ::unlink(path.c_str());
  ::close(descriptor);
}

void invalid_paths_are_refused(const ScratchFolder& folder) {
  using std::string_literals::operator""s;
  write_known_file(folder.file("cut"), 1000);
  for (const FileMode mode : {FileMode::read, FileMode::write}) {
    const auto error =
        check_throws<IoError>([&] { const File file(folder.file("cut") + "\0off"s, mode, true); }, "a null character");
    check(std::string(error.what()).find("null character") != std::string::npos, error.what());
  }
}

}  // namespace

int main() {
  const ScratchFolder folder;
  only_regular_files_are_opened(folder);
  writing_never_truncates(folder);
  only_aligned_transfers_go_direct(folder);
  a_tried_alignment_is_one_that_reads_accept(folder);
  memory_is_not_read_directly();
  invalid_paths_are_refused(folder);
}
