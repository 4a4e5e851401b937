// Exchanges between memory and files: order of transfers, contents, sums, and faults.
#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "diskhop/io/buffer.hpp"
#include "diskhop/io/content_sum.hpp"
#include "diskhop/io/exchange.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

// More pieces than are in flight; parts end within a piece.
constexpr std::uint64_t first_bytes = 9 * exchange_piece_bytes + 4096;
constexpr std::uint64_t second_bytes = 3 * exchange_piece_bytes + 2 * 4096;
constexpr std::uint64_t num_bytes = first_bytes + second_bytes;

/// Counts pieces that are begun and waited for, and keeps how many were at each begin of a read.
class RecordingEngine final : public Engine {
 public:
  explicit RecordingEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  Ticket submit(std::span<const Op> ops, Priority priority) override {
    const Ticket ticket = engine_->submit(ops, priority);
    if (ops.front().kind == OperationKind::read) {
      check(ops.front().offset == next_read_, "pieces are read in order");
      for (const Op& op : ops) next_read_ += op.num_bytes;
      check(next_read_ <= written_, "a piece is read only once it is written");
      most_unwritten_ = std::max(most_unwritten_, num_bytes - begun_);
    } else {
      for (const Op& op : ops) begun_ += op.num_bytes;
      writes_.emplace_back(ticket, begun_);
    }
    return ticket;
  }
  void wait(Ticket ticket) override {
    engine_->wait(ticket);
    for (const auto& [each, end] : writes_) {
      if (each == ticket) written_ = end;
    }
  }
  bool poll(Ticket ticket) override { return engine_->poll(ticket); }
  std::string name() const override { return engine_->name(); }
  unsigned depth() const override { return engine_->depth(); }

  /// Bytes that were still to be written when a read began.
  [[nodiscard]] std::uint64_t most_unwritten() const { return most_unwritten_; }

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<std::pair<Ticket, std::uint64_t>> writes_;
  std::uint64_t begun_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t next_read_ = 0;
  std::uint64_t most_unwritten_ = 0;
};

std::array<std::span<std::byte>, 2> parts_of(Buffer& memory) {
  return {std::span(memory.data(), first_bytes), std::span(memory.data() + first_bytes, second_bytes)};
}

std::vector<std::uint64_t> sums_of(const std::vector<std::byte>& content) {
  const std::span<const std::byte> all(content);
  return {page_sums(all.first(first_bytes), 0), page_sums(all.subspan(first_bytes), first_bytes / 4096)};
}

void a_piece_is_read_while_later_ones_are_written(const std::string& engine_name) {
  const ScratchFolder folder;
  RecordingEngine engine(make_engine(engine_name, 8, nullptr));
  write_known_file(folder.file("source"), num_bytes);
  Buffer memory(num_bytes);
  const std::vector<std::byte> before = known_bytes(77, num_bytes);
  std::memcpy(memory.data(), before.data(), num_bytes);
  {
    const File target(folder.file("target"), FileMode::write, true);
    const File source(folder.file("source"), FileMode::read, true);
    const auto parts = parts_of(memory);
    const ExchangeSums sums = exchange(engine, parts, &target, &source);
    check(sums.written == sums_of(before), "sums of what is written");
    check(sums.read == sums_of(known_bytes(0, num_bytes)), "sums of what is read");
  }
  check(engine.most_unwritten() > 0, "reads begin before all is written");
  check(file_bytes(folder.file("target")) == before, "memory is in the file");
  check(std::memcmp(memory.data(), known_bytes(0, num_bytes).data(), num_bytes) == 0, "the other file is in memory");
}

void each_way_works_alone(const std::string& engine_name) {
  const ScratchFolder folder;
  const auto engine = make_engine(engine_name, 8, nullptr);
  write_known_file(folder.file("source"), num_bytes);
  Buffer memory(num_bytes);
  const auto parts = parts_of(memory);
  const File source(folder.file("source"), FileMode::read, true);
  check(exchange(*engine, parts, nullptr, &source).read == sums_of(known_bytes(0, num_bytes)), "read alone");
  {
    const File target(folder.file("target"), FileMode::write, true);
    const ExchangeSums sums = exchange(*engine, parts, &target, nullptr);
    check(sums.written == sums_of(known_bytes(0, num_bytes)) && sums.read == std::vector<std::uint64_t>(2, 0),
          "written alone");
  }
  check(file_bytes(folder.file("target")) == known_bytes(0, num_bytes), "what is read is written");
  const std::array<std::span<std::byte>, 1> odd = {std::span(memory.data(), 4097)};
  check_throws<std::invalid_argument>([&] { static_cast<void>(exchange(*engine, odd, nullptr, &source)); },
                                      "parts are whole pages");
}

void a_fault_is_raised_when_nothing_is_in_flight(const std::string& engine_name) {
  for (const Counted counted : {Counted::writes, Counted::reads}) {
    for (const std::uint64_t nth : {1, 5, 30, 48}) {
      const ScratchFolder folder;
      write_known_file(folder.file("source"), num_bytes);
      Buffer memory(num_bytes);
      const auto engine =
          make_engine(engine_name, 8, injector_with({{.kind = FaultKind::io_error, .counted = counted, .nth = nth}}));
      const File target(folder.file("target"), FileMode::write, true);
      const File source(folder.file("source"), FileMode::read, true);
      const auto parts = parts_of(memory);
      const IoError error = check_throws<IoError>(
          [&] { static_cast<void>(exchange(*engine, parts, &target, &source)); }, "a fault is raised");
      check((error.kind() == OperationKind::write) == (counted == Counted::writes), "it is the fault's own");
    }
  }
}

}  // namespace

int main() {
  for (const std::string& engine_name : engine_names()) {
    a_piece_is_read_while_later_ones_are_written(engine_name);
    each_way_works_alone(engine_name);
    a_fault_is_raised_when_nothing_is_in_flight(engine_name);
  }
}
