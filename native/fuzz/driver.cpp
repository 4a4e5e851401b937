// Runs a fuzz target without libFuzzer, where the compiler is GCC: replays a corpus, then mutates it towards new code.
//
//     TARGET [-max_total_time=SECONDS] [-runs=N] [-seed=N] [-max_len=BYTES] [-artifact_prefix=P] [FOLDER or FILE ...]
//     TARGET -merge=1 OUT [FOLDER ...]     write the inputs that reach something new to OUT
//
// The options are libFuzzer's. Inputs that reach new code are written to the first folder. An input that ends the
// process, takes 20 seconds or leaves it with 2 GB of memory is written to P-crash, P-timeout or P-memory. The same
// seed gives the same inputs, as far as the target is deterministic and time allows.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "coverage.hpp"
#include "mutate.hpp"

extern "C" {
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes);
// NOLINTBEGIN: the sanitizers give these names.
// Memory beyond this in one piece is a finding, not a refusal.
const char* __asan_default_options() { return "max_allocation_size_mb=1024:detect_leaks=1"; }
// Its library does not know of the address sanitizer's callback.
const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }
// NOLINTEND
}

namespace {

namespace fs = std::filesystem;
using diskhop::fuzz::Bytes;

constexpr unsigned most_seconds_per_run = 20;
constexpr std::int64_t most_resident_kib = 2 << 20;

std::string artifact_prefix = "./";
const Bytes* running = nullptr;

/// Writes the input that is running; called from signal handlers, too.
void save_running(const char* kind) {
  const Bytes* const input = running;
  running = nullptr;
  if (input == nullptr) return;
  char path[4096];
  std::snprintf(path, sizeof path, "%s%s", artifact_prefix.c_str(), kind);
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ::write(file, input->data(), input->size()) < 0) return;
  ::close(file);
  std::fprintf(stderr, "the input is in %s\n", path);
}

[[noreturn]] void stop(const char* kind) {
  std::fprintf(stderr, "finding: %s\n", kind);
  save_running(kind);
  ::_exit(77);
}

void run(const Bytes& input) {
  // A copy of exactly this length, so that the sanitizer sees reads beyond it.
  const std::vector<std::uint8_t> exact(input.begin(), input.end());
  running = &input;
  ::alarm(most_seconds_per_run);
  diskhop::fuzz::begin_run();
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  diskhop::fuzz::end_run();
  ::alarm(0);
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss > most_resident_kib) stop("memory");
  running = nullptr;
}

struct Options {
  double seconds = 0;
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;
  std::size_t most_bytes = 4096;
  bool merges = false;
  std::vector<std::string> paths;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = argument.find('=');
    if (argument[0] != '-' || equals == std::string::npos) {
      options.paths.push_back(argument);
      continue;
    }
    const std::string name = argument.substr(1, equals - 1);
    const std::string value = argument.substr(equals + 1);
    if (name == "max_total_time") options.seconds = std::stod(value);
    if (name == "runs") options.runs = std::stoull(value);
    if (name == "seed") options.seed = std::stoull(value);
    if (name == "max_len") options.most_bytes = std::stoull(value);
    if (name == "merge") options.merges = value == "1";
    if (name == "artifact_prefix") artifact_prefix = value;
  }
  return options;
}

std::vector<Bytes> read_inputs(const std::vector<std::string>& paths, std::size_t first) {
  std::vector<fs::path> files;
  for (std::size_t i = first; i < paths.size(); ++i) {
    if (fs::is_directory(paths[i])) {
      for (const auto& entry : fs::directory_iterator(paths[i])) files.push_back(entry.path());
    } else {
      files.emplace_back(paths[i]);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) std::fprintf(stderr, "%s: cannot be read\n", file.c_str()), std::exit(2);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  // The shortest of the inputs that reach some code is kept.
  std::stable_sort(inputs.begin(), inputs.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return inputs;
}

void write_input(const std::string& folder, const Bytes& input) {
  char name[32];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(diskhop::fuzz::hash_bytes(input)));
  std::ofstream(fs::path(folder) / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  __sanitizer_set_death_callback([] { save_running("crash"); });
  std::signal(SIGABRT, [](int) { stop("crash"); });
  std::signal(SIGALRM, [](int) { stop("timeout"); });

  const bool keeps = !options.paths.empty() && fs::is_directory(options.paths[0]);
  std::vector<Bytes> corpus;
  const auto try_input = [&](const Bytes& input, bool is_new) {
    run(input);
    if (!diskhop::fuzz::has_new_features()) return;
    corpus.push_back(input);
    if (keeps && is_new) write_input(options.paths[0], input);
  };
  for (const Bytes& input : read_inputs(options.paths, options.merges ? 1 : 0)) try_input(input, options.merges);
  try_input({}, false);
  std::uint64_t num_runs = corpus.size();
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  diskhop::fuzz::Mutator mutator(options.seed, options.most_bytes);
  if (corpus.empty()) corpus.emplace_back();
  for (; !options.merges && (seconds() < options.seconds || num_runs < options.runs); ++num_runs) {
    try_input(mutator.next(corpus), true);
  }
  std::printf("%llu runs in %.0f s, %zu inputs reach %llu features, 0 findings\n",
              static_cast<unsigned long long>(num_runs), seconds(), corpus.size(),
              static_cast<unsigned long long>(diskhop::fuzz::num_features()));
  return 0;
}
