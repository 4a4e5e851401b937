// Functions of glibc 2.28 in place of newer ones: a wheel built on a newer system then loads on an older one.
//
// glibc gives a function another version when it changes it or moves it to another library, and keeps the old one. A
// linker takes the newest, unless something nearer defines the name: each function here does, also for libstdc++'s own
// calls, and calls the old version. 2.2.5 is the first glibc of x86-64.
#include <csignal>

extern "C" {

__asm__(".symver old_log, log@GLIBC_2.2.5");
double old_log(double value);
double log(double value) { return old_log(value); }

__asm__(".symver old_dlopen, dlopen@GLIBC_2.2.5");
void* old_dlopen(const char* path, int flags);
void* dlopen(const char* path, int flags) noexcept { return old_dlopen(path, flags); }

__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
void* old_dlsym(void* library, const char* name);
void* dlsym(void* library, const char* name) noexcept { return old_dlsym(library, name); }

__asm__(".symver old_dlclose, dlclose@GLIBC_2.2.5");
int old_dlclose(void* library);
int dlclose(void* library) noexcept { return old_dlclose(library); }

// Before 2.33 these were inline calls of a function that takes the version of `found`, a struct stat: 1 on x86-64.
__asm__(".symver old_stat, __xstat@GLIBC_2.2.5");
int old_stat(int version, const char* path, void* found);
int stat(const char* path, void* found) noexcept { return old_stat(1, path, found); }

__asm__(".symver old_fstat, __fxstat@GLIBC_2.2.5");
int old_fstat(int version, int descriptor, void* found);
int fstat(int descriptor, void* found) noexcept { return old_fstat(1, descriptor, found); }

__asm__(".symver old_create, pthread_create@GLIBC_2.2.5");
int old_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  return old_create(thread, attributes, run, argument);
}

__asm__(".symver old_join, pthread_join@GLIBC_2.2.5");
int old_join(pthread_t thread, void** result);
int pthread_join(pthread_t thread, void** result) { return old_join(thread, result); }

__asm__(".symver old_once, pthread_once@GLIBC_2.2.5");
int old_once(int* control, void (*run)());
int pthread_once(int* control, void (*run)()) { return old_once(control, run); }

__asm__(".symver old_key_create, pthread_key_create@GLIBC_2.2.5");
int old_key_create(unsigned* key, void (*destroy)(void*));
int pthread_key_create(unsigned* key, void (*destroy)(void*)) noexcept { return old_key_create(key, destroy); }
int __pthread_key_create(unsigned* key, void (*destroy)(void*)) noexcept { return old_key_create(key, destroy); }

__asm__(".symver old_sigmask, pthread_sigmask@GLIBC_2.2.5");
int old_sigmask(int how, const sigset_t* blocked, sigset_t* before);
int pthread_sigmask(int how, const sigset_t* blocked, sigset_t* before) noexcept {
  return old_sigmask(how, blocked, before);
}

// Not known: reference counts are then always atomic.
char __libc_single_threaded = 0;
}
