// Python bindings of files, buffers, faults and the engine. Errors become those of diskhop.errors, with the next step
// to take.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/base/owner_process.hpp"
#include "diskhop/io/buffer.hpp"
#include "diskhop/io/engine.hpp"
#include "diskhop/io/exchange.hpp"
#include "diskhop/io/faults.hpp"
#include "diskhop/io/file.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {

nb::object as_text(const std::string& text) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

std::string path_bytes(nb::handle path) {
  const nb::object encoded = nb::module_::import_("os").attr("fsencode")(path);
  return {PyBytes_AS_STRING(encoded.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr()))};
}

void set_error(const char* class_name, const std::string& message) {
  const nb::object error_class = nb::module_::import_("diskhop.errors").attr(class_name);
  PyErr_SetObject(error_class.ptr(), as_text(message).ptr());
}

namespace {

using Numbers = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Python's word for a value.
template <typename Value, std::size_t num_words>
Value parse(const std::string& word, const std::array<std::pair<const char*, Value>, num_words>& words,
            const char* what) {
  std::string known;
  for (const auto& [name, value] : words) {
    if (word == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument(std::string(what) + " '" + word + "' is not one of: " + known);
}

FaultKind parse_fault(const std::string& word) {
  static constexpr std::array<std::pair<const char*, FaultKind>, 7> words = {
      {{"short_transfer", FaultKind::short_transfer},
       {"interrupted", FaultKind::interrupted},
       {"again", FaultKind::again},
       {"io_error", FaultKind::io_error},
       {"no_space", FaultKind::no_space},
       {"truncated", FaultKind::truncated},
       {"crash", FaultKind::crash}}};
  return parse(word, words, "fault");
}

Counted parse_counted(const std::string& word) {
  static constexpr std::array<std::pair<const char*, Counted>, 6> words = {{{"reads", Counted::reads},
                                                                            {"writes", Counted::writes},
                                                                            {"fsyncs", Counted::fsyncs},
                                                                            {"renames", Counted::renames},
                                                                            {"changes", Counted::changes},
                                                                            {"all", Counted::all}}};
  return parse(word, words, "counted");
}

OperationKind parse_change(const std::string& word) {
  static constexpr std::array<std::pair<const char*, OperationKind>, 3> words = {
      {{"write", OperationKind::write}, {"fsync", OperationKind::fsync}, {"rename", OperationKind::rename}}};
  return parse(word, words, "kind");
}

FileMode parse_mode(const std::string& word) {
  static constexpr std::array<std::pair<const char*, FileMode>, 2> words = {
      {{"read", FileMode::read}, {"write", FileMode::write}}};
  return parse(word, words, "mode");
}

/// Whether the destination cannot accept data, rather than the device having failed.
bool is_destination_full_or_closed(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EROFS || error_number == EFBIG;
}

void set_transfer_error(const IoError& error) {
  const std::string message = error.what();
  const int error_number = error.code().value();
  if (error.kind() == OperationKind::read) {
    set_error("ReadError",
              message + (error_number == 0 ? "; the copy is incomplete: run 'diskhop verify' on the dataset"
                                           : "; check the disk, then run 'diskhop verify' on the dataset"));
  } else if (is_destination_full_or_closed(error_number)) {
    set_error("DestinationError", message + "; free some space there or choose another place");
  } else {
    set_error("WriteError", message + "; check the disk, then run the command again");
  }
}

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const IoError& error) {
    set_transfer_error(error);
  } catch (const ForkedError& error) {
    set_error("ConfigError", error.what());
  } catch (const std::system_error& error) {
    set_error("ConfigError", error.what() + std::string("; take '--engine threads' or raise the limits on memory and "
                                                        "processes (ulimit -l and -u)"));
  }
}

void open_file(File* place, nb::handle_t<nb::str> path, const std::string& mode, bool want_direct) {
  const FileMode parsed_mode = parse_mode(mode);
  try {
    new (place) File(path_bytes(path), parsed_mode, want_direct);
  } catch (const IoError& error) {
    const bool writes = parsed_mode == FileMode::write;
    set_error(writes ? "DestinationError" : "ReadError",
              error.what() + std::string(writes ? "; choose another place" : "; check the path"));
    throw nb::python_error();
  }
}

/// The engine, with the files and arrays that its tickets need: they live until wait(), even if Python drops them.
class BoundEngine final : public Engine {
 public:
  explicit BoundEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  Ticket submit(std::span<const Op> ops, Priority priority) override { return engine_->submit(ops, priority); }
  void wait(Ticket ticket) override { engine_->wait(ticket); }
  bool poll(Ticket ticket) override { return engine_->poll(ticket); }
  std::string name() const override { return engine_->name(); }
  unsigned depth() const override { return engine_->depth(); }

  /// Submits without the GIL and keeps what the ticket needs; the memory for that is taken first.
  Ticket submit_and_keep(const std::vector<Op>& ops, Priority priority, nb::object file, nb::object buffer) {
    std::map<Ticket, Needed> fresh;
    auto node = fresh.extract(fresh.emplace(0, Needed{std::move(file), std::move(buffer)}).first);
    {
      const nb::gil_scoped_release release;
      node.key() = engine_->submit(ops, priority);
    }
    return kept_.insert(std::move(node)).position->first;
  }

  void wait_and_release(Ticket ticket) {
    try {
      const nb::gil_scoped_release release;
      engine_->wait(ticket);
    } catch (...) {
      if (is_spent(ticket)) kept_.erase(ticket);
      throw;
    }
    kept_.erase(ticket);
  }

 private:
  struct Needed {
    nb::object file;
    nb::object buffer;
  };

  bool is_spent(Ticket ticket) {
    try {
      static_cast<void>(engine_->poll(ticket));
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  }

  std::map<Ticket, Needed> kept_;   // guarded by the GIL
  std::unique_ptr<Engine> engine_;  // destroyed first: it waits for transfers in flight
};

BoundEngine& bound(Engine& engine) { return static_cast<BoundEngine&>(engine); }

std::vector<Op> make_ops(OperationKind kind, const File& file, const Numbers& offsets, const Numbers& num_bytes,
                         std::byte* buffer, std::size_t buffer_bytes, const Numbers& buffer_offsets,
                         const std::optional<Numbers>& required_bytes) {
  const std::size_t num_ops = offsets.shape(0);
  if (num_bytes.shape(0) != num_ops || buffer_offsets.shape(0) != num_ops ||
      (required_bytes && required_bytes->shape(0) != num_ops)) {
    throw std::invalid_argument("offsets, num_bytes, buffer_offsets and required_bytes must have one length each");
  }
  std::vector<Op> ops(num_ops);
  for (std::size_t i = 0; i < num_ops; ++i) {
    const std::uint64_t place = buffer_offsets.data()[i];
    const std::uint64_t length = num_bytes.data()[i];
    if (place > buffer_bytes || length > buffer_bytes - place) {
      throw std::out_of_range("transfer " + std::to_string(i) + " of " + std::to_string(length) + " bytes at " +
                              std::to_string(place) + " does not fit the buffer of " + std::to_string(buffer_bytes) +
                              " bytes");
    }
    ops[i] = {.kind = kind,
              .file = &file,
              .offset = offsets.data()[i],
              .buffer = buffer + place,
              .num_bytes = length,
              .required_bytes = required_bytes ? required_bytes->data()[i] : length};
  }
  return ops;
}

Ticket submit_read(Engine& engine, nb::handle_t<File> file, const Numbers& offsets, const Numbers& num_bytes,
                   Bytes buffer, const Numbers& buffer_offsets, const std::optional<Numbers>& required_bytes,
                   bool prefetch) {
  auto* const begin = reinterpret_cast<std::byte*>(buffer.data());
  const std::vector<Op> ops = make_ops(OperationKind::read, nb::cast<const File&>(file), offsets, num_bytes, begin,
                                       buffer.nbytes(), buffer_offsets, required_bytes);
  return bound(engine).submit_and_keep(ops, prefetch ? Priority::prefetch : Priority::demand, nb::borrow(file),
                                       nb::cast(buffer));
}

Ticket submit_write(Engine& engine, nb::handle_t<File> file, const Numbers& offsets, const Numbers& num_bytes,
                    ConstBytes buffer, const Numbers& buffer_offsets) {
  // Only reads write to an op's buffer.
  auto* const begin = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(buffer.data()));
  const std::vector<Op> ops = make_ops(OperationKind::write, nb::cast<const File&>(file), offsets, num_bytes, begin,
                                       buffer.nbytes(), buffer_offsets, std::nullopt);
  return bound(engine).submit_and_keep(ops, Priority::demand, nb::borrow(file), nb::cast(buffer));
}

Ticket submit_fsync(Engine& engine, nb::handle_t<File> file) {
  const Op op = {.kind = OperationKind::fsync, .file = &nb::cast<const File&>(file)};
  return bound(engine).submit_and_keep({op}, Priority::demand, nb::borrow(file), nb::none());
}

std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>> exchange_arrays(Engine& engine,
                                                                                  const std::vector<Bytes>& parts,
                                                                                  const File* target,
                                                                                  const File* source) {
  std::vector<std::span<std::byte>> memory;
  for (const Bytes& part : parts) memory.emplace_back(reinterpret_cast<std::byte*>(part.data()), part.size());
  const nb::gil_scoped_release release;
  ExchangeSums sums = exchange(engine, memory, target, source);
  return {std::move(sums.written), std::move(sums.read)};
}

/// Makes an array in a pool's buffer, which returns to the pool with the array.
nb::object take_array(nb::handle_t<BufferPool> pool, std::size_t num_bytes) {
  Buffer buffer = nb::cast<BufferPool&>(pool).take(num_bytes);
  std::byte* const begin = buffer.data();
  const nb::capsule owner = lend(pool, std::move(buffer));
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(begin, {num_bytes}, owner));
}

}  // namespace

void bind_io(nb::module_& module) {
  module.def("why_no_uring", &why_no_uring, nb::call_guard<nb::gil_scoped_release>());

  nb::register_exception_translator(translate);
  nb::exception<CrashError>(module, "CrashError", PyExc_RuntimeError);

  nb::class_<FaultRule>(module, "FaultRule")
      .def(
          "__init__",
          [](FaultRule* place, const std::string& kind, const std::string& counted, std::uint64_t nth, bool once) {
            new (place) FaultRule{parse_fault(kind), parse_counted(counted), nth, once};
          },
          "kind"_a, "counted"_a, "nth"_a, "once"_a = true);
  nb::class_<FaultInjector>(module, "FaultInjector")
      .def(nb::init<std::vector<FaultRule>, std::uint64_t>(), "rules"_a, "seed"_a = 0)
      .def(
          "check",
          [](FaultInjector& injector, const std::string& kind, nb::handle_t<nb::str> path) {
            injector.check(parse_change(kind), path_bytes(path));
          },
          "kind"_a, "path"_a)
      .def(
          "count",
          [](const FaultInjector& injector, const std::string& counted) {
            return injector.count(parse_counted(counted));
          },
          "counted"_a);

  nb::class_<File>(module, "File")
      .def("__init__", &open_file, "path"_a, "mode"_a, "want_direct"_a = true)
      .def_prop_ro("path", [](const File& file) { return as_text(file.path()); })
      .def_prop_ro("num_bytes", &File::num_bytes)
      .def_prop_ro("direct", &File::direct)
      .def_prop_ro("offset_alignment", &File::offset_alignment)
      .def_prop_ro("memory_alignment", &File::memory_alignment);

  nb::class_<BufferPool>(module, "BufferPool")
      .def(nb::init<std::size_t, bool>(), "max_bytes"_a, "keeps_peak"_a = false)
      .def("take", &take_array, "num_bytes"_a)
      .def_prop_ro("free_bytes", &BufferPool::free_bytes);

  nb::class_<Engine>(module, "Engine")
      .def(nb::new_([](const std::string& name, unsigned depth,
                       std::shared_ptr<FaultInjector> injector) -> std::unique_ptr<Engine> {
             return std::make_unique<BoundEngine>(make_engine(name, depth, std::move(injector)));
           }),
           "name"_a, "depth"_a, "injector"_a.none() = nb::none())
      .def_prop_ro("name", &Engine::name)
      .def_prop_ro("depth", &Engine::depth)
      .def("submit_read", &submit_read, "file"_a, "offsets"_a.noconvert(), "num_bytes"_a.noconvert(),
           "buffer"_a.noconvert(), "buffer_offsets"_a.noconvert(), "required_bytes"_a.noconvert().none() = nb::none(),
           "prefetch"_a = false)
      .def("submit_write", &submit_write, "file"_a, "offsets"_a.noconvert(), "num_bytes"_a.noconvert(),
           "buffer"_a.noconvert(), "buffer_offsets"_a.noconvert())
      .def("submit_fsync", &submit_fsync, "file"_a)
      .def("exchange", &exchange_arrays, "parts"_a.noconvert(), "target"_a.none(), "source"_a.none(),
           "Write parts of memory to a file and read another one into them. Returns sums of what is written and read.")
      .def(
          "wait", [](Engine& engine, Ticket ticket) { bound(engine).wait_and_release(ticket); }, "ticket"_a)
      .def("poll", &Engine::poll, "ticket"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace diskhop
