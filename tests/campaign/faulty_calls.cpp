// Calls of the C library that fail on request: preloaded (LD_PRELOAD) into a process whose children are made to fail.
//
// Python arms it in a forked child, through ctypes:
//   faulty_calls_arm(folder, kind, nth)      the nth call that the kind applies to, on a file in the folder, fails
//   faulty_calls_slow(folder, nanoseconds)   every such call takes longer
//   faulty_calls_stall(folder, nth, nanoseconds)   the nth such call takes longer
//   faulty_news_arm(begin, end, site, nth)   the nth allocation by the call at offset `site` of a library fails
// Calls and allocations are counted in either case. Nothing happens in a process that is not armed.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>

namespace {

enum Kind : int { none = 0, io_error = 1, no_space = 2, interrupted = 3, short_transfer = 4, again = 5 };
// What a call does; a kind applies to some of them.
enum Class : int { opens, creates, reads, writes, engine_reads, engine_writes, syncs, names };

constexpr int max_descriptors = 1 << 16;
std::atomic<int> armed{0};
std::atomic<long> counted{0};
std::atomic<long> to_fail{0};
std::atomic<long> slow_nanoseconds{0};
std::atomic<long> slow_time{0};  // 0: every call
std::atomic<long> slow_counted{0};
std::array<char, PATH_MAX> folder{};
std::size_t folder_length = 0;
std::array<std::atomic<bool>, max_descriptors> is_watched{};

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool is_in_folder(const char* path) { return path != nullptr && strncmp(path, folder.data(), folder_length) == 0; }

bool watches() { return folder_length > 0; }

bool watches(int descriptor) {
  return watches() && descriptor >= 0 && descriptor < max_descriptors && is_watched[descriptor].load();
}

/// Whether a path relative to an open folder is in the watched one.
bool watches(int directory, const char* path) {
  if (!watches()) return false;
  return path != nullptr && path[0] == '/' ? is_in_folder(path) : watches(directory);
}

bool applies(int kind, Class what, std::size_t num_bytes) {
  switch (kind) {
    case io_error:
      return true;
    case no_space:
      return what != opens && what != reads && what != engine_reads;
    case interrupted:
      return what != names;
    case short_transfer:
      return num_bytes > 1 && (what == reads || what == writes || what == engine_reads || what == engine_writes);
    case again:
      return what == engine_reads || what == engine_writes;
    default:
      return true;
  }
}

int error_of(int kind) {
  switch (kind) {
    case no_space:
      return ENOSPC;
    case interrupted:
      return EINTR;
    case again:
      return EAGAIN;
    default:
      return EIO;
  }
}

/// Whether a call fails; counts it, and makes it slow.
bool fails(Class what, std::size_t num_bytes = 0) {
  const long nanoseconds = slow_nanoseconds.load();
  const long nth = slow_time.load();
  if (nanoseconds > 0 && (nth == 0 || ++slow_counted == nth)) {
    const timespec pause = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    nanosleep(&pause, nullptr);
  }
  const int kind = armed.load();
  return applies(kind, what, num_bytes) && ++counted == to_fail.load() && kind != none;
}

template <typename Result>
Result fail() {
  errno = error_of(armed.load());
  return static_cast<Result>(-1);
}

void watch(int descriptor, bool wanted) {
  if (descriptor >= 0 && descriptor < max_descriptors) is_watched[descriptor] = wanted;
}

/// Carries out a transfer, which may fail or be short.
template <typename Transfer>
ssize_t transfer(int descriptor, Class what, std::size_t num_bytes, Transfer carry_out) {
  if (!watches(descriptor) || !fails(what, num_bytes)) return carry_out(num_bytes);
  if (armed.load() == short_transfer) return carry_out(num_bytes / 2);
  return fail<ssize_t>();
}

int open_with(const char* name, int directory, const char* path, int flags, mode_t mode) {
  const bool watched = watches(directory, path);
  if (watched && fails((flags & (O_CREAT | O_TMPFILE)) != 0 ? creates : opens)) return fail<int>();
  const int descriptor = strncmp(name, "openat", 6) == 0
                             ? real<int (*)(int, const char*, int, ...)>(name)(directory, path, flags, mode)
                             : real<int (*)(const char*, int, ...)>(name)(path, flags, mode);
  watch(descriptor, watched);
  return descriptor;
}

template <typename Call>
int change_name(bool watched, Call call) {
  return watched && fails(names) ? fail<int>() : call();
}

// Allocations by one library: how many each call of it has made.
struct Site {
  std::atomic<std::uintptr_t> place{0};
  std::atomic<long> count{0};
};
constexpr std::size_t max_sites = 1 << 14;
std::array<Site, max_sites> sites;
std::atomic<std::uintptr_t> library_begin{0};
std::atomic<std::uintptr_t> library_end{0};
std::atomic<std::uintptr_t> failing_site{0};
std::atomic<long> failing_time{0};

bool allocation_fails(std::uintptr_t caller) {
  const std::uintptr_t begin = library_begin.load();
  if (begin == 0 || caller < begin || caller >= library_end.load()) return false;
  const std::uintptr_t place = caller - begin;
  for (std::size_t index = place % max_sites, tries = 0; tries < max_sites; index = (index + 1) % max_sites, ++tries) {
    std::uintptr_t found = 0;
    if (!sites[index].place.compare_exchange_strong(found, place) && found != place) continue;
    const long time = ++sites[index].count;
    return place == failing_site.load() && time == failing_time.load();
  }
  return false;
}

void* allocate(std::size_t num_bytes, std::size_t alignment, std::uintptr_t caller) {
  if (allocation_fails(caller)) return nullptr;
  const std::size_t wanted = num_bytes == 0 ? 1 : num_bytes;
  if (alignment == 0) return malloc(wanted);
  return aligned_alloc(alignment, (wanted + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t num_bytes, std::size_t alignment, std::uintptr_t caller) {
  void* const place = allocate(num_bytes, alignment, caller);
  if (place == nullptr) throw std::bad_alloc();
  return place;
}

}  // namespace

// The address of the caller, which says what library it is in.
#define CALLER reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

extern "C" {

void faulty_calls_arm(const char* watched, int kind, long nth) {
  folder_length = strlen(watched);
  memcpy(folder.data(), watched, folder_length + 1);
  counted = 0;
  to_fail = nth;
  armed = kind;
}
long faulty_calls_count() { return counted.load(); }
void faulty_calls_slow(const char* watched, long nanoseconds) {
  faulty_calls_arm(watched, none, 0);
  slow_nanoseconds = nanoseconds;
}
void faulty_calls_stall(const char* watched, long nth, long nanoseconds) {
  slow_time = nth;
  faulty_calls_slow(watched, nanoseconds);
}

void faulty_news_arm(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t site, long nth) {
  failing_site = site;
  failing_time = nth;
  library_end = end;
  library_begin = begin;
}
/// Copies the places of allocations and how many each has made. Returns how many places there are.
long faulty_news_sites(std::uintptr_t* places, long* counts, long capacity) {
  long number = 0;
  for (const Site& site : sites) {
    if (site.place.load() == 0) continue;
    if (number < capacity) {
      places[number] = site.place.load();
      counts[number] = site.count.load();
    }
    ++number;
  }
  return number;
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open_with("open", AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open_with("open64", AT_FDCWD, path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open_with("openat", directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open_with("openat64", directory, path, flags, mode);
}
int close(int descriptor) {
  watch(descriptor, false);
  return real<int (*)(int)>("close")(descriptor);
}
int dup(int descriptor) {
  const int copy = real<int (*)(int)>("dup")(descriptor);
  watch(copy, watches(descriptor));
  return copy;
}

int fcntl64(int descriptor, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const int result = real<int (*)(int, int, ...)>("fcntl64")(descriptor, command, argument);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) watch(result, watches(descriptor));
  return result;
}

ssize_t read(int descriptor, void* out, size_t num_bytes) {
  return transfer(descriptor, reads, num_bytes, [&](std::size_t wanted) {
    return real<ssize_t (*)(int, void*, size_t)>("read")(descriptor, out, wanted);
  });
}
ssize_t write(int descriptor, const void* content, size_t num_bytes) {
  return transfer(descriptor, writes, num_bytes, [&](std::size_t wanted) {
    return real<ssize_t (*)(int, const void*, size_t)>("write")(descriptor, content, wanted);
  });
}
ssize_t pread(int descriptor, void* out, size_t num_bytes, off_t offset) {
  return transfer(descriptor, engine_reads, num_bytes, [&](std::size_t wanted) {
    return real<ssize_t (*)(int, void*, size_t, off_t)>("pread")(descriptor, out, wanted, offset);
  });
}
ssize_t pread64(int descriptor, void* out, size_t num_bytes, off64_t offset) {
  return pread(descriptor, out, num_bytes, offset);
}
ssize_t pwrite(int descriptor, const void* content, size_t num_bytes, off_t offset) {
  return transfer(descriptor, engine_writes, num_bytes, [&](std::size_t wanted) {
    return real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(descriptor, content, wanted, offset);
  });
}
ssize_t pwrite64(int descriptor, const void* content, size_t num_bytes, off64_t offset) {
  return pwrite(descriptor, content, num_bytes, offset);
}
size_t fread(void* out, size_t item_bytes, size_t num_items, FILE* file) {
  if (watches() && watches(fileno(file)) && fails(reads)) {
    errno = error_of(armed.load());
    return 0;
  }
  return real<size_t (*)(void*, size_t, size_t, FILE*)>("fread")(out, item_bytes, num_items, file);
}
size_t fwrite(const void* content, size_t item_bytes, size_t num_items, FILE* file) {
  if (watches() && watches(fileno(file)) && fails(writes)) {
    errno = error_of(armed.load());
    return 0;
  }
  return real<size_t (*)(const void*, size_t, size_t, FILE*)>("fwrite")(content, item_bytes, num_items, file);
}

int fsync(int descriptor) {
  if (watches(descriptor) && fails(syncs)) return fail<int>();
  return real<int (*)(int)>("fsync")(descriptor);
}
int fdatasync(int descriptor) {
  if (watches(descriptor) && fails(syncs)) return fail<int>();
  return real<int (*)(int)>("fdatasync")(descriptor);
}
int ftruncate64(int descriptor, off64_t length) {
  if (watches(descriptor) && fails(syncs)) return fail<int>();
  return real<int (*)(int, off64_t)>("ftruncate64")(descriptor, length);
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
  if (watches(descriptor) && fails(syncs)) return error_of(armed.load());
  return real<int (*)(int, off64_t, off64_t)>("posix_fallocate64")(descriptor, offset, length);
}

int rename(const char* from, const char* to) {
  return change_name(watches() && is_in_folder(to),
                     [&] { return real<int (*)(const char*, const char*)>("rename")(from, to); });
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return change_name(watches(to_directory, to), [&] {
    return real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(from_directory, from, to_directory,
                                                                                    to, flags);
  });
}
int link(const char* from, const char* to) {
  return change_name(watches() && is_in_folder(to),
                     [&] { return real<int (*)(const char*, const char*)>("link")(from, to); });
}
int mkdir(const char* path, mode_t mode) {
  return change_name(watches() && is_in_folder(path),
                     [&] { return real<int (*)(const char*, mode_t)>("mkdir")(path, mode); });
}

}  // extern "C"

void* operator new(std::size_t num_bytes) { return allocate_or_throw(num_bytes, 0, CALLER); }
void* operator new[](std::size_t num_bytes) { return allocate_or_throw(num_bytes, 0, CALLER); }
void* operator new(std::size_t num_bytes, const std::nothrow_t&) noexcept { return allocate(num_bytes, 0, CALLER); }
void* operator new[](std::size_t num_bytes, const std::nothrow_t&) noexcept { return allocate(num_bytes, 0, CALLER); }
void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
  return allocate_or_throw(num_bytes, static_cast<std::size_t>(alignment), CALLER);
}
void* operator new[](std::size_t num_bytes, std::align_val_t alignment) {
  return allocate_or_throw(num_bytes, static_cast<std::size_t>(alignment), CALLER);
}
void operator delete(void* place) noexcept { free(place); }
void operator delete[](void* place) noexcept { free(place); }
void operator delete(void* place, std::size_t) noexcept { free(place); }
void operator delete[](void* place, std::size_t) noexcept { free(place); }
void operator delete(void* place, const std::nothrow_t&) noexcept { free(place); }
void operator delete[](void* place, const std::nothrow_t&) noexcept { free(place); }
void operator delete(void* place, std::align_val_t) noexcept { free(place); }
void operator delete[](void* place, std::align_val_t) noexcept { free(place); }
void operator delete(void* place, std::size_t, std::align_val_t) noexcept { free(place); }
void operator delete[](void* place, std::size_t, std::align_val_t) noexcept { free(place); }

extern "C" void* mmap(void* place, size_t length, int protection, int flags, int descriptor, off_t offset) {
  if (descriptor < 0 && allocation_fails(CALLER)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  // Not by dlsym(), which may map memory itself.
  return reinterpret_cast<void*>(syscall(SYS_mmap, place, length, protection, flags, descriptor, offset));
}
