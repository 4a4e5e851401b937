// A bucket's pieces, from all spills, become one part of the lists.
#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "diskhop/stream_file.hpp"
#include "edge_keys.hpp"
#include "key_sort.hpp"

namespace diskhop {
namespace {

/// Takes sorted keys piece by piece and writes what the lists have of them.
template <typename Key>
class PartWriter {
 public:
  /// first_position: edges in the buckets before; nodes: those whose first key is in this bucket.
  PartWriter(StreamFileWriter& writer, const KeyLayout& layout, std::uint64_t first_position, std::uint64_t first_node,
             std::uint64_t end_node)
      : writer_(writer),
        layout_(layout),
        position_(static_cast<std::int64_t>(first_position)),
        next_node_(first_node),
        end_node_(end_node) {}

  void operator()(std::span<const Key> sorted) {
    if (layout_.index_bytes() == 4) {
      append_all<std::uint32_t>(sorted);
    } else {
      append_all<std::int64_t>(sorted);
    }
  }

  /// The key as often as it occurs, where there is no telling the edges apart.
  void repeat(Key key, std::uint64_t count) {
    for (; count > 0; --count) (*this)(std::span<const Key>(&key, 1));
  }

  void finish() {
    append_positions(position_, end_node_);
    writer_.finish();
  }

 private:
  template <typename Index>
  void append_all(std::span<const Key> sorted) {
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const std::uint64_t node = destination_of(layout_, sorted[i]);
      if (node >= next_node_) append_positions(position_ + static_cast<std::int64_t>(i), node + 1);
    }
    position_ += static_cast<std::int64_t>(sorted.size());
    writer_.append_run<Index>(part_indices, sorted.size(),
                              [&](std::size_t i) { return static_cast<Index>(source_of(layout_, sorted[i])); });
    if (!layout_.is_numbered) return;
    writer_.append_run<std::int64_t>(part_numbers, sorted.size(), [&](std::size_t i) {
      return static_cast<std::int64_t>(number_of(layout_, sorted[i]));
    });
  }

  void append_positions(std::int64_t position, std::uint64_t end_node) {
    for (; next_node_ < end_node; ++next_node_) writer_.append(part_indptr, position);
  }

  StreamFileWriter& writer_;
  const KeyLayout layout_;  // its own, so that the compiler sees that nobody changes it
  std::int64_t position_;
  std::uint64_t next_node_;
  std::uint64_t end_node_;
};

/// The keys of a bucket that lie from `first` to `last`.
template <typename Key>
struct KeyRange {
  Key first;
  Key last;
  std::uint64_t count;
};

template <typename Key>
class BucketSorter {
 public:
  BucketSorter(Engine& engine, BufferPool& pool, const BucketSort& job) : engine_(engine), pool_(pool), job_(job) {
    for (const std::string& path : job.spill_paths) spills_.emplace_back(engine, path);
  }

  std::uint64_t run() {
    const std::size_t num_buckets = job_.bucket_starts.size();
    const KeyLayout& layout = job_.layout;
    std::uint64_t first_position = 0;
    std::uint64_t spill_block_bytes = stream_alignment;
    KeyRange<Key> all = {
        .first = from_words<Key>(job_.bucket_starts.at(job_.bucket)), .last = last_key<Key>(layout), .count = 0};
    for (const StreamFile& spill : spills_) {
      if (spill.num_streams() != num_buckets) {
        throw DamagedFileError(spill.file().path() + ": has " + std::to_string(spill.num_streams()) +
                               " buckets, the plan " + std::to_string(num_buckets));
      }
      for (std::size_t bucket = 0; bucket < job_.bucket; ++bucket) first_position += spill.num_bytes(bucket);
      all.count += spill.num_bytes(job_.bucket);
      spill_block_bytes = std::max(spill_block_bytes, spill.block_bytes());
    }
    first_position /= sizeof(Key);
    all.count /= sizeof(Key);
    const std::uint64_t first_node = first_node_from(layout, all.first);
    std::uint64_t end_node = layout.num_destinations + 1;
    if (job_.bucket + 1 < num_buckets) {
      const Key next = from_words<Key>(job_.bucket_starts[job_.bucket + 1]);
      all.last = next - 1;
      end_node = first_node_from(layout, next);
    }

    StreamFileWriter writer(engine_, pool_, job_.part_path, 3, job_.block_bytes, job_.num_spare_blocks);
    PartWriter<Key> part(writer, layout, first_position, first_node, end_node);
    if (all.count <= job_.max_keys) {
      sort_whole(all, part);
    } else {
      const PooledBuffer window(pool_, job_.num_window_blocks * spill_block_bytes);
      window_ = {window.data(), job_.num_window_blocks * spill_block_bytes};
      sort_by_pieces(all, part);
    }
    part.finish();
    return num_passes_;
  }

 private:
  void sort_and_write(const KeyRange<Key>& range, std::span<Key> keys, std::span<Key> scratch, PartWriter<Key>& part) {
    sort_keys(keys, scratch.first(keys.size()), range.first, key_width<Key>(range.last - range.first), part);
  }

  /// All pieces at once, each to its place: the full blocks first, so that those begin as direct reads want it.
  void sort_whole(const KeyRange<Key>& range, PartWriter<Key>& part) {
    struct Piece {
      const StreamFile* spill;
      StreamBlock block;
      std::byte* place;
    };
    std::vector<Piece> pieces;
    for (const StreamFile& spill : spills_) {
      for (const StreamBlock& block : spill.blocks(job_.bucket)) pieces.push_back({&spill, block, nullptr});
    }
    std::stable_partition(pieces.begin(), pieces.end(),
                          [](const Piece& piece) { return piece.block.num_bytes % stream_alignment == 0; });
    std::uint64_t staged_bytes = 0;
    for (const Piece& piece : pieces) staged_bytes += whole_sectors(piece.block.num_bytes);
    const PooledBuffer staged(pool_, staged_bytes);
    const PooledBuffer scratch(pool_, range.count * sizeof(Key));
    std::vector<Op> ops;
    std::byte* place = staged.data();
    for (Piece& piece : pieces) {
      piece.place = place;
      ops.push_back({.kind = OperationKind::read,
                     .file = &piece.spill->file(),
                     .offset = piece.block.offset,
                     .buffer = place,
                     .num_bytes = whole_sectors(piece.block.num_bytes)});
      place += whole_sectors(piece.block.num_bytes);
    }
    if (!ops.empty()) engine_.wait(engine_.submit(ops, Priority::demand));
    std::byte* end = staged.data();
    for (const Piece& piece : pieces) {
      piece.spill->check(piece.block, piece.place);
      if (end != piece.place) std::memmove(end, piece.place, piece.block.num_bytes);
      end += piece.block.num_bytes;
    }
    ++num_passes_;
    sort_and_write(range, {reinterpret_cast<Key*>(staged.data()), range.count},
                   {reinterpret_cast<Key*>(scratch.data()), range.count}, part);
  }

  /// Reads the bucket once and hands over every block of keys.
  template <typename Take>
  void read_all(Take take) {
    ++num_passes_;
    for (const StreamFile& spill : spills_) {
      StreamReader reader(engine_, spill, job_.bucket, window_);
      for (auto block = reader.next(); !block.empty(); block = reader.next()) {
        take(std::span<const Key>(reinterpret_cast<const Key*>(block.data()), block.size() / sizeof(Key)));
      }
    }
  }

  /// A range that does not fit is cut in cells of equal width, each counted; neighbours that fit together are sorted
  /// together, a cell that does not fit alone is cut in turn. It ends: a range of one key needs no sorting.
  void sort_by_pieces(const KeyRange<Key>& range, PartWriter<Key>& part) {
    if (range.first == range.last) return part.repeat(range.first, range.count);
    constexpr std::size_t num_cells = 4096;
    const Key width = (range.last - range.first) / num_cells + 1;
    std::vector<std::uint64_t> counts(num_cells);
    read_all([&](std::span<const Key> keys) {
      for (const Key key : keys) {
        if (key < range.first || key > range.last) continue;
        ++counts[static_cast<std::size_t>((key - range.first) / width)];
      }
    });
    KeyRange<Key> group = {.first = range.first, .last = range.first, .count = 0};
    bool is_open = false;  // whether the group has any cells
    for (std::size_t cell = 0; cell < num_cells; ++cell) {
      const Key first = range.first + static_cast<Key>(cell) * width;
      if (static_cast<Key>(cell) > (range.last - range.first) / width) break;
      const Key last = first + std::min<Key>(width - 1, range.last - first);
      if (is_open && group.count + counts[cell] > job_.max_keys) {
        sort_group(group, part);
        is_open = false;
      }
      if (!is_open) group = {.first = first, .last = last, .count = 0};
      is_open = true;
      group.last = last;
      group.count += counts[cell];
    }
    if (is_open) sort_group(group, part);
  }

  void sort_group(const KeyRange<Key>& group, PartWriter<Key>& part) {
    if (group.count == 0) return;
    if (group.count > job_.max_keys) return sort_by_pieces(group, part);
    const PooledBuffer memory(pool_, 2 * group.count * sizeof(Key));
    const std::span<Key> both(reinterpret_cast<Key*>(memory.data()), 2 * group.count);
    std::size_t num_keys = 0;
    read_all([&](std::span<const Key> keys) {
      for (const Key key : keys) {
        if (key >= group.first && key <= group.last) both[num_keys++] = key;
      }
    });
    sort_and_write(group, both.first(group.count), both.last(group.count), part);
  }

  Engine& engine_;
  BufferPool& pool_;
  const BucketSort& job_;
  std::deque<StreamFile> spills_;  // files stay where they are
  std::span<std::byte> window_;
  std::uint64_t num_passes_ = 0;
};

}  // namespace

std::uint64_t sort_bucket(Engine& engine, BufferPool& pool, const BucketSort& job) {
  return job.layout.key_bytes() == 8 ? BucketSorter<std::uint64_t>(engine, pool, job).run()
                                     : BucketSorter<WideKey>(engine, pool, job).run();
}

}  // namespace diskhop
