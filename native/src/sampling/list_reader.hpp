// Parts of neighbour lists, and of columns in their order, from memory or from the disk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "diskhop/rows/rows.hpp"
#include "diskhop/sampling/column.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "sampling/growing_array.hpp"
#include "sampling/lists.hpp"

namespace diskhop {

/// A list of the graph: edges begin .. begin + degree - 1 of `indices`.
struct FoundList {
  std::uint64_t number;  // of a graph without types, that of its node
  std::uint64_t begin;
  std::uint64_t degree;
};

/// A list of one node of a batch, and how many edges to draw from it.
struct ListOfNode : FoundList {
  std::size_t node;  // local
  std::uint64_t fanout;
};

/// Reads values of edges for one piece of a hop: add their positions, then read. A value's place is the number of those
/// added before. Threading: one thread at a time.
class EdgeRequest {
 public:
  /// Id, place, the value as read, and 44 bytes in the scan, which may have to sort.
  static constexpr std::size_t bytes_per_edge = 3 * sizeof(std::int64_t) + 44;

  /// Reserves memory for this many values.
  void reserve(std::size_t num_values) {
    ids_.reserve(num_values);
    places_.reserve(num_values);
  }

  void add(std::span<const std::uint64_t> positions, std::size_t place) {
    for (const std::uint64_t position : positions) {
      ids_.push_back(static_cast<std::int64_t>(position));
      places_.push_back(static_cast<std::int64_t>(place++));
    }
  }

  void add_range(std::uint64_t begin, std::uint64_t count, std::size_t place) {
    for (std::uint64_t edge = 0; edge < count; ++edge) {
      ids_.push_back(static_cast<std::int64_t>(begin + edge));
      places_.push_back(static_cast<std::int64_t>(place + edge));
    }
  }

  /// Waits for the added values at their places, and forgets them.
  ReadCounts read(SharedScan& scan, std::byte* out) {
    ReadCounts counts;
    if (!ids_.empty()) counts = scan.wait(scan.join(ids_, places_, out)).reads;
    ids_.clear();
    places_.clear();
    return counts;
  }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<std::int64_t> places_;
};

/// Reads neighbours and columns of lists.
/// Threading: one thread at a time.
template <typename Lists>
class ListReader {
  using Index = typename Lists::Id;

 public:
  explicit ListReader(const Lists& topology) : topology_(topology) {}

  /// Starts to count the reads of a batch.
  void start() { counts_ = {}; }

  /// Finds a list. Throws std::out_of_range for a damaged one.
  [[nodiscard]] FoundList find(std::uint64_t number) const {
    const std::int64_t begin = topology_.indptr[number];
    const std::int64_t end = topology_.indptr[number + 1];
    if (begin < 0 || end < begin || end > static_cast<std::int64_t>(topology_.num_edges())) {
      refuse_list(topology_, number);
    }
    return {number, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end - begin)};
  }

  /// Reads the neighbours at `positions`, which are of the lists in order: counts[i] of them of list i.
  void read_neighbors(std::span<const ListOfNode> lists, std::span<const std::size_t> counts,
                      std::span<const std::uint64_t> positions, std::uint64_t* neighbors) {
    if constexpr (is_cached<Lists>) {
      read_.reserve(positions.size(), 0);
      request_.reserve(positions.size());
      std::size_t place = 0;
      for (std::size_t list = 0; list < lists.size(); ++list) {
        const auto of_list = positions.subspan(place, counts[list]);
        if (is_list_cached(topology_, lists[list].number)) {
          const Index* const cached = cached_list(lists[list]);
          for (std::size_t edge = 0; edge < of_list.size(); ++edge) {
            read_[place + edge] = cached[of_list[edge] - lists[list].begin];
          }
        } else {
          request_.add(of_list, place);
        }
        place += of_list.size();
      }
      add_counts(request_.read(*topology_.scan, reinterpret_cast<std::byte*>(read_.data())));
    }
    const std::uint64_t num_nodes = topology_.num_nodes();
    for (std::size_t place = 0; place < positions.size(); ++place) {
      Index neighbor;
      if constexpr (is_cached<Lists>) {
        neighbor = read_[place];
      } else {
        if (place + lookahead < positions.size()) __builtin_prefetch(&topology_.indices[positions[place + lookahead]]);
        neighbor = topology_.indices[positions[place]];
      }
      if (static_cast<std::uint64_t>(neighbor) >= num_nodes) refuse_index(positions[place], neighbor, num_nodes);
      neighbors[place] = static_cast<std::uint64_t>(neighbor);
    }
  }

  /// Finds the neighbours of whole lists, which stay valid until lists are read again. Sets starts[i] to the first of
  /// list i. Only lists that are not in memory are copied.
  void read_whole(std::span<const ListOfNode> lists, std::vector<const Index*>& starts) {
    starts.clear();
    if constexpr (is_cached<Lists>) {
      std::size_t num_missing = 0;
      for (const ListOfNode& list : lists) num_missing += is_list_cached(topology_, list.number) ? 0 : list.degree;
      read_.reserve(num_missing, 0);
      request_.reserve(num_missing);
      std::size_t place = 0;
      for (const ListOfNode& list : lists) {
        if (is_list_cached(topology_, list.number)) {
          starts.push_back(cached_list(list));
          continue;
        }
        starts.push_back(read_.data() + place);
        request_.add_range(list.begin, list.degree, place);
        place += list.degree;
      }
      add_counts(request_.read(*topology_.scan, reinterpret_cast<std::byte*>(read_.data())));
    } else {
      for (const ListOfNode& list : lists) starts.push_back(topology_.indices.data() + list.begin);
    }
  }

  /// Reads the values of whole lists, one list after another.
  template <typename Value>
  void read_column(const Column& column, std::span<const ListOfNode> lists, Value* out) {
    std::size_t place = 0;
    const std::size_t width = bytes_of(column.type);
    if (column.scan != nullptr) {
      std::size_t num_values = 0;
      for (const ListOfNode& list : lists) num_values += list.degree;
      raw_.reserve(num_values * width, 0);
      request_.reserve(num_values);
      for (const ListOfNode& list : lists) {
        request_.add_range(list.begin, list.degree, place);
        place += list.degree;
      }
      add_counts(request_.read(*column.scan, raw_.data()));
      convert(column.type, raw_.data(), num_values, out);
      return;
    }
    for (const ListOfNode& list : lists) {
      convert(column.type, column.values.data() + list.begin * width, list.degree, out + place);
      place += list.degree;
    }
  }

  [[nodiscard]] const ReadCounts& counts() const { return counts_; }

 private:
  static constexpr std::size_t lookahead = 16;

  const Index* cached_list(const FoundList& list) const {
    const std::uint64_t begin = find_cached_list(topology_, list.number);
    if (begin > topology_.lists.size() || topology_.lists.size() - begin < list.degree) {
      refuse_list(topology_, list.number);
    }
    return topology_.lists.data() + begin;
  }

  void add_counts(const ReadCounts& counts) {
    counts_.reads += counts.reads;
    counts_.bytes_read += counts.bytes_read;
    counts_.bytes_copied += counts.bytes_copied;
  }

  const Lists& topology_;
  EdgeRequest request_;
  GrowingArray<Index> read_;
  GrowingArray<std::byte> raw_;
  ReadCounts counts_;
};

}  // namespace diskhop
