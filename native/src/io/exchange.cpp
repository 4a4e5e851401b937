#include "diskhop/io/exchange.hpp"

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <utility>

#include "diskhop/io/content_sum.hpp"

namespace diskhop {
namespace {

// A single large request does not keep the disk busy.
constexpr std::uint64_t request_bytes = std::uint64_t{1} << 20;

struct Piece {
  std::size_t part;
  std::uint64_t offset;  // in the file
  std::span<std::byte> memory;
};

/// One way of an exchange: its pieces in flight, in order, which it waits for when it is left.
class Way {
 public:
  Way(Engine& engine, OperationKind kind, const File* file) : engine_(engine), kind_(kind), file_(file) {}
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;
  Way(Way&&) = delete;
  Way& operator=(Way&&) = delete;
  ~Way() {
    for (const auto& [piece, ticket] : in_flight_) {
      try {
        engine_.wait(ticket);
      } catch (...) {  // another transfer's error is raised already
      }
    }
  }

  [[nodiscard]] bool is_used() const noexcept { return file_ != nullptr; }
  [[nodiscard]] std::size_t num_in_flight() const noexcept { return in_flight_.size(); }

  void begin(const Piece& piece) {
    std::vector<Op> ops;
    for (std::uint64_t start = 0; start < piece.memory.size(); start += request_bytes) {
      ops.push_back({.kind = kind_,
                     .file = file_,
                     .offset = piece.offset + start,
                     .buffer = piece.memory.data() + start,
                     .num_bytes = std::min<std::uint64_t>(request_bytes, piece.memory.size() - start)});
    }
    in_flight_.emplace_back(piece, 0);
    try {
      in_flight_.back().second = engine_.submit(ops, Priority::demand);
    } catch (...) {
      in_flight_.pop_back();
      throw;
    }
  }

  /// Waits for the first piece, and returns it.
  Piece finish() {
    const auto [piece, ticket] = in_flight_.front();
    in_flight_.pop_front();
    engine_.wait(ticket);
    return piece;
  }

 private:
  Engine& engine_;
  OperationKind kind_;
  const File* file_;
  std::deque<std::pair<Piece, Ticket>> in_flight_;
};

class Exchange {
 public:
  Exchange(Engine& engine, std::size_t num_parts, const File* target, const File* source)
      : writes_(engine, OperationKind::write, target),
        reads_(engine, OperationKind::read, source),
        sums_{std::vector<std::uint64_t>(num_parts), std::vector<std::uint64_t>(num_parts)} {}

  void add(const Piece& piece) {
    if (!writes_.is_used()) {
      read(piece);
      return;
    }
    sums_.written[piece.part] += page_sums(piece.memory, piece.offset / sum_page_bytes);
    writes_.begin(piece);
    finish_writes(exchange_pieces_in_flight);
  }

  ExchangeSums finish() {
    finish_writes(0);
    finish_reads(0);
    return std::move(sums_);
  }

 private:
  void finish_writes(std::size_t most_in_flight) {
    while (writes_.num_in_flight() > most_in_flight) read(writes_.finish());
  }

  void read(const Piece& piece) {
    if (!reads_.is_used()) return;
    reads_.begin(piece);
    finish_reads(exchange_pieces_in_flight);
  }

  void finish_reads(std::size_t most_in_flight) {
    while (reads_.num_in_flight() > most_in_flight) {
      const Piece piece = reads_.finish();
      sums_.read[piece.part] += page_sums(piece.memory, piece.offset / sum_page_bytes);
    }
  }

  Way writes_;
  Way reads_;
  ExchangeSums sums_;
};

}  // namespace

ExchangeSums exchange(Engine& engine, std::span<const std::span<std::byte>> parts, const File* target,
                      const File* source) {
  Exchange exchanged(engine, parts.size(), target, source);
  std::uint64_t offset = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].size() % sum_page_bytes != 0) {
      throw std::invalid_argument("parts must be a number of whole pages");
    }
    for (std::uint64_t start = 0; start < parts[part].size(); start += exchange_piece_bytes) {
      const std::uint64_t num_bytes = std::min<std::uint64_t>(exchange_piece_bytes, parts[part].size() - start);
      exchanged.add({part, offset + start, parts[part].subspan(start, num_bytes)});
    }
    offset += parts[part].size();
  }
  return exchanged.finish();
}

}  // namespace diskhop
