// Preloaded into a daemon, harms the disk below the folder LONGHAUL_TEST_DISK. The file
// LONGHAUL_TEST_DISK_STATE holds an int32_t that the test writes: 0 leaves all as it is, 1 makes
// writes and syncs wait until it changes, as a disk that does not answer does, 2 makes writes fail
// as on a full disk. Reads go on.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using State = std::atomic<int32_t>;
constexpr int32_t kStalled = 1, kFull = 2;

const State* MapState() {
  static const State none{0};
  const char* const path = std::getenv("LONGHAUL_TEST_DISK_STATE");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const mapped = ::mmap(nullptr, sizeof(State), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<const State*>(mapped);
}

const State& state() {
  static const State* const mapped = MapState();
  return *mapped;
}

bool IsBelow(const char* path) {
  static const char* const folder = std::getenv("LONGHAUL_TEST_DISK");
  return folder != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool IsBelow(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return IsBelow(path);
}

// Returns true if the call must fail, because the disk is full. Waits while it stalls.
template <class Place>
bool Harmed(Place place, bool takes_room) {
  if (state().load(std::memory_order_relaxed) == 0 || !IsBelow(place)) return false;
  while (state().load(std::memory_order_relaxed) == kStalled) {
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
    ::nanosleep(&kPause, nullptr);
  }
  if (!takes_room || state().load(std::memory_order_relaxed) != kFull) return false;
  errno = ENOSPC;
  return true;
}

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// In place of libc's.
extern "C" {

int fsync(int fd) {
  static auto* const real = Next<int(int)>("fsync");
  return Harmed(fd, false) ? -1 : real(fd);
}

int fdatasync(int fd) {
  static auto* const real = Next<int(int)>("fdatasync");
  return Harmed(fd, false) ? -1 : real(fd);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto* const real = Next<ssize_t(int, const void*, size_t)>("write");
  return Harmed(fd, true) ? -1 : real(fd, bytes, count);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  static auto* const real = Next<ssize_t(int, const iovec*, int)>("writev");
  return Harmed(fd, true) ? -1 : real(fd, parts, count);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  static auto* const real = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return Harmed(fd, true) ? -1 : real(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t at) {
  static auto* const real = Next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return Harmed(fd, true) ? -1 : real(fd, bytes, count, at);
}

int ftruncate(int fd, off_t size) noexcept {
  static auto* const real = Next<int(int, off_t)>("ftruncate");
  return Harmed(fd, false) ? -1 : real(fd, size);
}

int ftruncate64(int fd, off64_t size) noexcept {
  static auto* const real = Next<int(int, off64_t)>("ftruncate64");
  return Harmed(fd, false) ? -1 : real(fd, size);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = Next<int(const char*, const char*)>("rename");
  return Harmed(to, false) ? -1 : real(from, to);
}

int unlink(const char* path) noexcept {
  static auto* const real = Next<int(const char*)>("unlink");
  return Harmed(path, false) ? -1 : real(path);
}
}
