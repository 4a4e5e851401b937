// Files of streams, and the edges that are spilled to them: whole files, and forged ones with right checksums.
#include "diskhop/io/stream_file.hpp"

#include <optional>

#include "diskhop/graph/csc.hpp"
#include "diskhop/io/content_sum.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

constexpr std::uint64_t magic = 0x33736d6165727473;

std::vector<std::byte> padded(std::span<const std::uint8_t> content) {
  std::vector<std::byte> file(whole_sectors(content.size()));
  std::ranges::copy(std::as_bytes(content), file.begin());
  return file;
}

/// Builds a file as its writer would, and replaces some words of its index before the index is summed.
std::vector<std::byte> forge(Input& input, std::size_t num_streams) {
  std::vector<std::byte> file;
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> places;
  for (std::size_t stream = 0; stream < num_streams; ++stream) {
    counts.push_back(input.below(4));
    for (std::uint64_t block = 0; block < counts.back(); ++block) {
      const std::size_t unit = input.flag() ? 1 : 64;
      const std::uint64_t num_bytes = 1 + input.below(64) * unit;
      const auto pattern = input.take<std::uint64_t>();
      const std::size_t offset = file.size();
      file.resize(offset + whole_sectors(num_bytes));
      for (std::uint64_t i = 0; i < num_bytes; ++i) file[offset + i] = static_cast<std::byte>(pattern >> 8 * (i % 8));
      places.insert(places.end(), {offset, num_bytes, content_sum(file.data() + offset, num_bytes)});
    }
  }
  std::vector<std::uint64_t> words = counts;
  words.insert(words.end(), places.begin(), places.end());
  for (std::size_t left = input.below(4); left > 0; --left) {
    words[input.below(words.size())] = input.flag() ? input.take<std::uint64_t>() : input.below(1 << 15);
  }
  std::vector<std::uint64_t> trailer{
      magic,       std::uint64_t{4096} << input.below(2),
      num_streams, places.size() / 3,
      file.size(), content_sum(reinterpret_cast<const std::byte*>(words.data()), 8 * words.size())};
  if (input.flag()) trailer[input.below(trailer.size())] = input.take<std::uint64_t>();
  const std::size_t index = file.size();
  file.resize(index + whole_sectors(8 * (words.size() + trailer.size())));
  std::memcpy(file.data() + index, words.data(), 8 * words.size());
  std::memcpy(file.data() + file.size() - 8 * trailer.size(), trailer.data(), 8 * trailer.size());
  return file;
}

void read_streams(const std::string& path) {
  const StreamFile file(engine(), path);
  const Buffer window(3 * file.block_bytes());
  for (std::size_t stream = 0; stream < file.num_streams(); ++stream) {
    std::uint64_t num_bytes = 0;
    StreamReader reader(engine(), file, stream, {window.data(), 3 * file.block_bytes()});
    for (auto block = reader.next(); !block.empty(); block = reader.next()) num_bytes += block.size();
    require(num_bytes == file.num_bytes(stream), "a stream has the bytes that its index says");
  }
}

void read_edges(const SortedEdges& edges, const KeyLayout& layout) {
  const std::uint64_t count = edges.num_edges();
  std::vector<std::byte> indices(count * layout.index_bytes());
  edges.copy_indices(0, count, indices.data());
  std::vector<std::int64_t> numbers(count);
  edges.copy_numbers(0, numbers);
  std::vector<std::int64_t> indptr(std::min<std::uint64_t>(layout.num_destinations + 1, 64));
  edges.copy_indptr(0, indptr);
  if (count > 0) require(edges.last_destination() < layout.num_destinations, "a destination is a node");
}

void sort_edges(const std::string& path, const KeyLayout& layout, std::span<const KeyWords> starts,
                std::uint64_t max_edges) {
  BufferPool pool(0);
  const std::vector<std::string> paths{path};
  const auto edges = open_spilled_edges(engine(), pool, layout, paths, starts, 3);
  for (std::size_t bucket = 0; bucket < starts.size(); ++bucket) {
    for (const KeyRange& range : edges->cut(bucket, max_edges)) read_edges(*edges->sort(range), layout);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  const bool is_forged = input.flag();
  const std::size_t num_streams = 1 + input.below(3);
  const std::uint64_t nodes = 1 + input.below(1000);
  const bool is_wide = input.flag();
  const std::uint64_t num_destinations = 1 + input.below(300);
  const KeyLayout layout = is_wide ? make_key_layout(nodes << 40, nodes << 20, nodes << 20)
                                   : make_key_layout(nodes, num_destinations, input.below(3));
  std::vector<KeyWords> starts{{}};
  while (starts.size() < num_streams) starts.push_back({0, starts.back().low + 1 + input.below(1000)});
  if (starts.back().low >> std::min(63U, layout.bits()) != 0) starts.resize(1);
  const std::uint64_t max_edges = 1 + input.below(100);

  const MemoryFile file(is_forged ? forge(input, num_streams) : padded(input.rest()));
  refuse_or<DamagedFileError, IoError>([&] { read_streams(file.path()); });
  refuse_or<DamagedFileError, IoError>([&] { sort_edges(file.path(), layout, starts, max_edges); });
  return 0;
}
