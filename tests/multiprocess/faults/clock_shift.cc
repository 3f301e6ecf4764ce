// Preloaded into a daemon, moves its wall clock: the file LONGHAUL_TEST_CLOCK_SHIFT holds by how
// many seconds (an int64_t), read at every look at the clock. The monotonic clock stays, as on a
// machine whose time somebody sets.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

using Seconds = std::atomic<int64_t>;

const Seconds* MapShift() {
  static const Seconds none{0};
  const char* const path = std::getenv("LONGHAUL_TEST_CLOCK_SHIFT");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const mapped = ::mmap(nullptr, sizeof(Seconds), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<const Seconds*>(mapped);
}

time_t Shift() {
  static const Seconds* const shift = MapShift();
  return shift->load(std::memory_order_relaxed);
}

}  // namespace

// In place of libc's.
extern "C" {

int clock_gettime(clockid_t id, timespec* time) noexcept {
  // Not libc's function: this is that.
  if (::syscall(SYS_clock_gettime, id, time) != 0) return -1;
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) time->tv_sec += Shift();
  return 0;
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}
}
