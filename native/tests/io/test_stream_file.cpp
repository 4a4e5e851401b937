// Files of streams: streams come back as written, damage is found, and a failed write ends the file.
#include <cstring>
#include <utility>

#include "diskhop/base/random.hpp"
#include "diskhop/io/content_sum.hpp"
#include "diskhop/io/stream_file.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

using Streams = std::vector<std::vector<std::uint32_t>>;

constexpr std::size_t num_streams = 5;

// Values of 1 to 4 bytes, some of which do not fill a block.
constexpr std::size_t value_bytes(std::size_t stream) { return stream == 3 ? 4 : stream + 1 - stream / 4; }

void write_bytes(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Reads all streams of a file; throws if one is damaged.
void read_all(Engine& engine, const std::string& path) {
  const StreamFile file(engine, path);
  const Buffer window(8192);
  for (std::size_t stream = 0; stream < file.num_streams(); ++stream) {
    StreamReader reader(engine, file, stream, {window.data(), 8192});
    while (!reader.next().empty()) continue;
  }
}

/// Writes streams of different lengths to a file and returns them.
Streams write_streams(Engine& engine, const std::string& path) {
  BufferPool pool(0);
  Streams written(num_streams);
  StreamFileWriter writer(engine, pool, path, num_streams, 4096, 2);
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    // Stream 3 stays empty, stream 4 gets many at a time.
    const std::size_t stream = draw64(1, i) % 3;
    const std::uint32_t value = i & ((1U << (8 * value_bytes(stream))) - 1);
    writer.append(stream, value, value_bytes(stream));
    written[stream].push_back(value);
    if (i % 1000 == 7) {
      for (std::uint32_t k = 0; k < i; ++k) writer.append(4, k, value_bytes(4));
      for (std::uint32_t k = 0; k < i; ++k) written[4].push_back(k);
    }
  }
  writer.finish();
  return written;
}

void streams_come_back(const std::string& engine_name) {
  const ScratchFolder folder;
  const auto engine = make_engine(engine_name, 8, nullptr);
  const std::string path = folder.file("streams");
  const Streams expected = write_streams(*engine, path);
  const StreamFile file(*engine, path);
  check(file.num_streams() == num_streams && file.block_bytes() == 4096, "a file knows its streams and blocks");
  const Buffer window(3 * 4096);
  for (std::size_t stream = 0; stream < num_streams; ++stream) {
    std::vector<std::uint32_t> found;
    StreamReader reader(*engine, file, stream, {window.data(), 3 * 4096});
    for (auto block = reader.next(); !block.empty(); block = reader.next()) {
      check(block.size() % value_bytes(stream) == 0, "a block has whole values");
      for (std::size_t place = 0; place < block.size(); place += value_bytes(stream)) {
        std::uint32_t value = 0;
        std::memcpy(&value, block.data() + place, value_bytes(stream));
        found.push_back(value);
      }
    }
    check(found == expected[stream], "a stream comes back as it was written");
    check(file.num_bytes(stream) == value_bytes(stream) * found.size(), "its length is right");
  }
  check_throws<std::invalid_argument>([&] { StreamReader(*engine, file, 0, {window.data(), 4096}); },
                                      "a window has two");
}

void damaged_files_are_refused(const std::string& engine_name) {
  const ScratchFolder folder;
  const auto engine = make_engine(engine_name, 8, nullptr);
  const std::string path = folder.file("streams");
  static_cast<void>(write_streams(*engine, path));
  const std::vector<std::byte> content = file_bytes(path);
  for (const std::size_t cut : {content.size(), content.size() - 1, content.size() - 4096, std::size_t{4096}}) {
    write_bytes(path, {content.begin(), content.end() - static_cast<std::ptrdiff_t>(cut)});
    check_throws<DamagedFileError>([&] { StreamFile(*engine, path); }, "a file that is cut short is refused");
  }
  for (const std::size_t place : {std::size_t{0}, std::size_t{5000}, content.size() / 2}) {
    std::vector<std::byte> damaged = content;
    damaged[place] ^= std::byte{4};
    write_bytes(path, damaged);
    check_throws<DamagedFileError>([&] { read_all(*engine, path); }, "a block with changed content is refused");
  }
}

// A word with a half that is, under the key of its place, 1 or all ones: a product alone misses changes of the other
// half.
void every_bit_that_flips_is_seen() {
  const ScratchFolder folder;
  const auto engine = make_engine("threads", 8, nullptr);
  BufferPool pool(0);
  const std::string path = folder.file("streams");
  std::vector<std::uint64_t> words;
  for (std::uint64_t lane = 0; lane < 4; ++lane) {
    words.push_back(mix64(lane + 1) ^ ((lane < 2 ? std::uint64_t{1} : std::uint64_t{0xffffffff}) << 32 | 77));
  }
  {
    StreamFileWriter writer(*engine, pool, path, 1, 4096, 1);
    for (const std::uint64_t word : words) writer.append(0, word, sizeof(word));
    writer.finish();
  }
  read_all(*engine, path);
  const std::vector<std::byte> content = file_bytes(path);
  for (std::size_t bit = 0; bit < 64 * words.size(); ++bit) {
    std::vector<std::byte> damaged = content;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    write_bytes(path, damaged);
    check_throws<DamagedFileError>([&] { read_all(*engine, path); }, "bit " + std::to_string(bit));
  }
  // In the trailer: its second word is the size of blocks.
  for (const std::uint64_t block_bytes : {std::uint64_t{0}, std::uint64_t{2048}, std::uint64_t{1} << 40}) {
    std::vector<std::byte> damaged = content;
    std::memcpy(damaged.data() + damaged.size() - 40, &block_bytes, 8);
    write_bytes(path, damaged);
    check_throws<DamagedFileError>([&] { read_all(*engine, path); }, "blocks of no size that there is");
  }
}

// Whoever writes a file can also sum its index: its numbers must not lead out of the file, or of the index.
void a_forged_index_is_refused() {
  const ScratchFolder folder;
  const auto engine = make_engine("threads", 8, nullptr);
  BufferPool pool(0);
  const std::string path = folder.file("streams");
  {
    StreamFileWriter writer(*engine, pool, path, 2, 4096, 1);
    for (const std::size_t stream : {std::size_t{0}, std::size_t{1}}) writer.append(stream, std::uint64_t{7}, 8);
    writer.finish();
  }
  const std::vector<std::byte> content = file_bytes(path);
  constexpr std::size_t num_words = 2 + 3 * 2;
  const std::size_t index = content.size() - 4096;
  const auto forge = [&](const std::vector<std::pair<std::size_t, std::uint64_t>>& changes) {
    std::vector<std::byte> forged = content;
    for (const auto& [word, value] : changes) std::memcpy(forged.data() + index + 8 * word, &value, 8);
    const std::uint64_t sum = content_sum(forged.data() + index, 8 * num_words);
    std::memcpy(forged.data() + forged.size() - 8, &sum, 8);
    write_bytes(path, forged);
  };
  forge({});
  read_all(*engine, path);
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  // Blocks per stream that are two in total only modulo 2^64.
  for (const std::uint64_t most : {half, ~std::uint64_t{0}, std::uint64_t{3}}) {
    forge({{0, most}, {1, 2 - most}});
    check_throws<DamagedFileError>([&] { StreamFile(*engine, path); }, "a stream has no more blocks than the file");
  }
  for (const std::uint64_t offset : {half, ~std::uint64_t{0}, half - 4096, std::uint64_t{8192}, std::uint64_t{4097}}) {
    forge({{2, offset}});
    check_throws<DamagedFileError>([&] { StreamFile(*engine, path); }, "blocks end before the index");
  }
}

void nothing_is_written_after_a_failed_write() {
  for (std::uint64_t nth = 1; nth <= 4; ++nth) {
    const ScratchFolder folder;
    const auto injector = injector_with({{.kind = FaultKind::io_error, .counted = Counted::writes, .nth = nth}});
    const auto engine = make_engine("threads", 8, injector);
    BufferPool pool(0);
    StreamFileWriter writer(*engine, pool, folder.file("streams"), 1, 4096, 1);
    bool has_failed = false;
    std::size_t num_refused = 0;
    for (std::uint64_t i = 0; i < 4096; ++i) {
      try {
        writer.append(0, i, sizeof(i));
      } catch (const IoError&) {
        check(!has_failed, "it fails once");
        has_failed = true;
      } catch (const std::logic_error&) {
        ++num_refused;
        break;  // the block is full, nothing more fits
      }
      if (has_failed) break;
    }
    if (has_failed) check_throws<std::logic_error>([&] { writer.finish(); }, "a file that is not whole has no end");
  }
}

}  // namespace

int main() {
  for (const std::string& name : engine_names()) {
    streams_come_back(name);
    damaged_files_are_refused(name);
  }
  every_bit_that_flips_is_seen();
  a_forged_index_is_refused();
  nothing_is_written_after_a_failed_write();
}
