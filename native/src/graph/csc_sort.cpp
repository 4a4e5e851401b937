// Reading a bucket's pieces from all spills, and sorting them.
#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "diskhop/io/stream_file.hpp"
#include "graph/sorted_keys.hpp"

namespace diskhop {
namespace {

constexpr std::size_t num_cells = 4096;

template <typename Key>
class Spilled final : public SpilledEdges {
 public:
  Spilled(Engine& engine, BufferPool& pool, const KeyLayout& layout, std::span<const std::string> spill_paths,
          std::span<const KeyWords> bucket_starts, std::size_t window_blocks)
      : engine_(engine), pool_(pool), layout_(layout), starts_(bucket_starts.begin(), bucket_starts.end()) {
    std::vector<Key> starts;
    for (const KeyWords& words : starts_) starts.push_back(from_words<Key>(words));
    stored_bytes_ = stored_key_bytes<Key>(layout, starts);
    std::uint64_t block_bytes = stream_alignment;
    for (const std::string& path : spill_paths) {
      const StreamFile& spill = spills_.emplace_back(engine, path);
      if (spill.num_streams() != starts_.size()) {
        throw DamagedFileError(path + ": has " + std::to_string(spill.num_streams()) + " buckets, the plan " +
                               std::to_string(starts_.size()));
      }
      require_whole_keys(spill, path);
      block_bytes = std::max(block_bytes, spill.block_bytes());
    }
    window_bytes_ = window_blocks * block_bytes;
  }

  std::vector<KeyRange> cut(std::size_t bucket, std::uint64_t max_edges) const override {
    std::vector<KeyRange> ranges;
    cut_range(whole(bucket), std::max<std::uint64_t>(1, max_edges), ranges);
    return ranges;
  }

  std::unique_ptr<SortedEdges> sort(const KeyRange& range) const override {
    const Key first = from_words<Key>(range.first);
    const Key last = from_words<Key>(range.last);
    if (first == last) return repeat(first, range.num_edges);
    return range.num_edges == num_edges(range.bucket) ? sort_whole(range, first, last) : sort_some(range, first, last);
  }

 private:
  using Memory = std::unique_ptr<PooledBuffer>;

  Memory make_memory(std::uint64_t num_bytes) const { return std::make_unique<PooledBuffer>(pool_, num_bytes); }

  /// Sorts the keys that visit() passes on; see sort_visited(). They may lie in `memory`.
  template <typename Visit>
  std::unique_ptr<SortedEdges> sort_into(Memory memory, const Visit& visit, std::uint64_t count, Key first,
                                         Key last) const {
    const std::span<Key> keys(reinterpret_cast<Key*>(memory->data()), count);
    {
      const PooledBuffer scratch(pool_, count * sizeof(Key));
      auto keep = keep_at(keys.data());
      sort_visited<Key>(visit, keys, {reinterpret_cast<Key*>(scratch.data()), count}, first,
                        key_width<Key>(last - first), keep);
    }
    return std::make_unique<SortedKeys<Key, Memory>>(layout_, std::move(memory), keys);
  }

  std::uint64_t num_edges(std::size_t bucket) const {
    std::uint64_t num_bytes = 0;
    for (const StreamFile& spill : spills_) num_bytes += spill.num_bytes(bucket);
    return num_bytes / stored_bytes_[bucket];
  }

  void require_whole_keys(const StreamFile& spill, const std::string& path) const {
    for (std::size_t bucket = 0; bucket < starts_.size(); ++bucket) {
      for (const StreamBlock& block : spill.blocks(bucket)) {
        if (block.num_bytes % stored_bytes_[bucket] == 0) continue;
        throw DamagedFileError(path + ": the block at offset " + std::to_string(block.offset) +
                               " does not have whole edges");
      }
    }
  }

  [[noreturn]] static void refuse_key() {
    throw DamagedFileError("a spill of edges has one that is not of its bucket, or not of the graph");
  }

  Key last_of(std::size_t bucket) const {
    if (bucket + 1 == starts_.size()) return last_key<Key>(layout_);
    return static_cast<Key>(from_words<Key>(starts_[bucket + 1]) - 1);
  }

  KeyRange whole(std::size_t bucket) const {
    return {.bucket = bucket,
            .first = starts_.at(bucket),
            .last = to_words(last_of(bucket)),
            .num_edges = num_edges(bucket)};
  }

  /// Splits a range with too many edges into cells of equal width, and counts each. Neighbouring cells that fit
  /// together are merged; a cell that is too large is split again. This ends: edges with one key can be divided by
  /// count.
  void cut_range(const KeyRange& range, std::uint64_t max_edges, std::vector<KeyRange>& ranges) const {
    if (range.num_edges == 0) return;
    if (range.num_edges <= max_edges) return ranges.push_back(range);
    const Key first = from_words<Key>(range.first);
    const Key last = from_words<Key>(range.last);
    if (first == last) {
      for (std::uint64_t left = range.num_edges; left > 0; left -= ranges.back().num_edges) {
        ranges.push_back(range);
        ranges.back().num_edges = std::min(left, max_edges);
      }
      return;
    }
    const Key width = (last - first) / num_cells + 1;
    std::vector<std::uint64_t> counts(num_cells);
    visit_bucket(range.bucket, [&](Key key) {
      if (key >= first && key <= last) ++counts[static_cast<std::size_t>((key - first) / width)];
    });
    KeyRange group;
    for (std::size_t cell = 0; static_cast<Key>(cell) <= (last - first) / width; ++cell) {
      const Key begin = first + static_cast<Key>(cell) * width;
      const KeyWords end = to_words<Key>(begin + std::min<Key>(width - 1, last - begin));
      if (cell > 0 && group.num_edges + counts[cell] <= max_edges) {
        group.last = end;
        group.num_edges += counts[cell];
      } else {
        cut_range(group, max_edges, ranges);
        group = {.bucket = range.bucket, .first = to_words(begin), .last = end, .num_edges = counts[cell]};
      }
    }
    cut_range(group, max_edges, ranges);
  }

  /// Edges that are all the same are known without a look at them.
  std::unique_ptr<SortedEdges> repeat(Key key, std::uint64_t count) const {
    if (key > last_key<Key>(layout_)) refuse_key();
    Memory memory = make_memory(count * sizeof(Key));
    const std::span<Key> keys(reinterpret_cast<Key*>(memory->data()), count);
    std::fill(keys.begin(), keys.end(), key);
    return std::make_unique<SortedKeys<Key, Memory>>(layout_, std::move(memory), keys);
  }

  /// Reads all pieces to where the sorted keys will be, and sorts them from their stored form.
  std::unique_ptr<SortedEdges> sort_whole(const KeyRange& range, Key first, Key last) const {
    struct Piece {
      const StreamFile* spill;
      StreamBlock block;
    };
    std::vector<Piece> pieces;
    std::uint64_t staged_bytes = 0;
    for (const StreamFile& spill : spills_) {
      for (const StreamBlock& block : spill.blocks(range.bucket)) {
        pieces.push_back({&spill, block});
        staged_bytes += whole_sectors(block.num_bytes);
      }
    }
    Memory memory = make_memory(std::max(staged_bytes, range.num_edges * sizeof(Key)));
    std::vector<Op> ops;
    std::byte* place = memory->data();
    for (const Piece& piece : pieces) {
      const std::uint64_t num_bytes = whole_sectors(piece.block.num_bytes);
      ops.push_back({.kind = OperationKind::read,
                     .file = &piece.spill->file(),
                     .offset = piece.block.offset,
                     .buffer = place,
                     .num_bytes = num_bytes});
      place += num_bytes;
    }
    engine_.wait(engine_.submit(ops, Priority::demand));
    std::vector<std::span<const std::byte>> contents;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].spill->check(pieces[i].block, ops[i].buffer);
      contents.emplace_back(ops[i].buffer, pieces[i].block.num_bytes);
    }
    const auto visit = [&](const auto& each) {
      for (const auto content : contents) visit_keys(range.bucket, content, each);
    };
    return sort_into(std::move(memory), visit, range.num_edges, first, last);
  }

  std::unique_ptr<SortedEdges> sort_some(const KeyRange& range, Key first, Key last) const {
    Memory memory = make_memory(range.num_edges * sizeof(Key));
    Key* const found = reinterpret_cast<Key*>(memory->data());
    std::uint64_t num_found = 0;
    visit_bucket(range.bucket, [&](Key key) {
      if (key >= first && key <= last && num_found < range.num_edges) found[num_found++] = key;
    });
    const auto visit = [found, num_found](const auto& each) {
      for (std::uint64_t i = 0; i < num_found; ++i) each(found[i]);
    };
    return sort_into(std::move(memory), visit, num_found, first, last);
  }

  /// Reads a bucket in order and passes on every key.
  template <typename Each>
  void visit_bucket(std::size_t bucket, const Each& each) const {
    const PooledBuffer window(pool_, window_bytes_);
    for (const StreamFile& spill : spills_) {
      StreamReader reader(engine_, spill, bucket, {window.data(), window_bytes_});
      for (auto block = reader.next(); !block.empty(); block = reader.next()) visit_keys(bucket, block, each);
    }
  }

  /// Passes on every key of a block of a bucket. Throws DamagedFileError for a key of another bucket, which has no
  /// place among the sorted ones.
  template <typename Each>
  void visit_keys(std::size_t bucket, std::span<const std::byte> content, const Each& each) const {
    const std::size_t stored_bytes = stored_bytes_[bucket];
    const Key start = from_words<Key>(starts_[bucket]);
    const Key last = std::min(last_of(bucket), last_key<Key>(layout_));
    std::array<Key, 512> keys;
    while (!content.empty()) {
      const std::span<Key> some(keys.data(), std::min(content.size() / stored_bytes, keys.size()));
      load_keys<Key>(content.data(), stored_bytes_[bucket], start, some);
      bool are_inside = true;
      for (const Key key : some) are_inside &= key >= start && key <= last;
      if (!are_inside) refuse_key();
      for (const Key key : some) each(key);
      content = content.subspan(some.size() * stored_bytes);
    }
  }

  Engine& engine_;
  BufferPool& pool_;
  KeyLayout layout_;
  std::vector<KeyWords> starts_;
  std::vector<unsigned> stored_bytes_;  // bytes per key, by bucket
  std::deque<StreamFile> spills_;       // a deque: files must not move
  std::uint64_t window_bytes_ = 0;
};

}  // namespace

std::unique_ptr<SpilledEdges> open_spilled_edges(Engine& engine, BufferPool& pool, const KeyLayout& layout,
                                                 std::span<const std::string> spill_paths,
                                                 std::span<const KeyWords> bucket_starts, std::size_t window_blocks) {
  if (layout.key_bytes() == 8) {
    return std::make_unique<Spilled<std::uint64_t>>(engine, pool, layout, spill_paths, bucket_starts, window_blocks);
  }
  return std::make_unique<Spilled<WideKey>>(engine, pool, layout, spill_paths, bucket_starts, window_blocks);
}

}  // namespace diskhop
