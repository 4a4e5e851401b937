#include "diskhop/io/stream_file.hpp"
#include "graph/edge_keys.hpp"

namespace diskhop {
namespace {

template <typename Key>
class Spill final : public EdgeSpill {
 public:
  Spill(Engine& engine, BufferPool& pool, const std::string& path, const KeyLayout& layout, BucketTable<Key> buckets,
        std::uint64_t block_bytes, std::size_t num_spare_blocks)
      : layout_(layout),
        buckets_(std::move(buckets)),
        stored_bytes_(stored_key_bytes<Key>(layout, buckets_.starts())),
        writer_(engine, pool, path, buckets_.starts().size(), block_bytes, num_spare_blocks) {}

  std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources, const IdColumn& destinations,
                            std::size_t count) override {
    return make_keys<Key>(layout_, first_number, sources, destinations, count,
                          [this](std::size_t /*first*/, std::span<const Key> keys) {
                            for (const Key key : keys) {
                              const std::size_t bucket = buckets_(key);
                              const auto offset = static_cast<Key>(key - buckets_.starts()[bucket]);
                              writer_.append(bucket, offset, stored_bytes_[bucket]);
                            }
                          });
  }

  void finish() override { writer_.finish(); }

 private:
  KeyLayout layout_;
  BucketTable<Key> buckets_;
  std::vector<unsigned> stored_bytes_;
  StreamFileWriter writer_;
};

template <typename Key>
std::unique_ptr<EdgeSpill> make_spill(Engine& engine, BufferPool& pool, const std::string& path,
                                      const KeyLayout& layout, std::span<const KeyWords> bucket_starts,
                                      std::uint64_t block_bytes, std::size_t num_spare_blocks) {
  std::vector<Key> starts;
  for (const KeyWords& words : bucket_starts) starts.push_back(from_words<Key>(words));
  return std::make_unique<Spill<Key>>(engine, pool, path, layout, BucketTable<Key>(std::move(starts), layout.bits()),
                                      block_bytes, num_spare_blocks);
}

}  // namespace

std::unique_ptr<EdgeSpill> make_edge_spill(Engine& engine, BufferPool& pool, const std::string& path,
                                           const KeyLayout& layout, std::span<const KeyWords> bucket_starts,
                                           std::uint64_t block_bytes, std::size_t num_spare_blocks) {
  return layout.key_bytes() == 8
             ? make_spill<std::uint64_t>(engine, pool, path, layout, bucket_starts, block_bytes, num_spare_blocks)
             : make_spill<WideKey>(engine, pool, path, layout, bucket_starts, block_bytes, num_spare_blocks);
}

}  // namespace diskhop
