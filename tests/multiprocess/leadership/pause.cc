// Preloaded into a daemon, takes a pause out of its monotonic clocks: the file LONGHAUL_TEST_PAUSE
// holds by how many nanoseconds (an int64_t) they are late. A test that stops the process and
// writes there for how long before it goes on makes what a paused virtual machine sees: no time has
// passed. The wall clock stays right, as where the host sets it again.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

using Nanoseconds = std::atomic<int64_t>;
constexpr int64_t kSecond = 1'000'000'000;

const Nanoseconds* MapPause() {
  static const Nanoseconds none{0};
  const char* const path = std::getenv("LONGHAUL_TEST_PAUSE");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const mapped = ::mmap(nullptr, sizeof(Nanoseconds), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<const Nanoseconds*>(mapped);
}

int64_t Pause() {
  static const Nanoseconds* const pause = MapPause();
  return pause->load(std::memory_order_relaxed);
}

bool IsLate(clockid_t id) {
  return id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_MONOTONIC_COARSE ||
         id == CLOCK_BOOTTIME;
}

timespec Moved(const timespec& time, int64_t by) {
  const int64_t sum = time.tv_sec * kSecond + time.tv_nsec + by;
  return {.tv_sec = sum / kSecond, .tv_nsec = sum % kSecond};
}

// A deadline of the late clock, by the kernel's. Deadlines without end stay.
timespec ForKernel(const timespec& deadline) {
  return deadline.tv_sec > INT64_MAX / kSecond / 2 ? deadline : Moved(deadline, Pause());
}

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// In place of libc's.
extern "C" {

int clock_gettime(clockid_t id, timespec* time) noexcept {
  // Not libc's function: this is that.
  if (::syscall(SYS_clock_gettime, id, time) != 0) return -1;
  if (IsLate(id)) *time = Moved(*time, -Pause());
  return 0;
}

int clock_nanosleep(clockid_t id, int flags, const timespec* until, timespec* left) {
  const bool moved = IsLate(id) && (flags & TIMER_ABSTIME) != 0;
  const timespec at = moved ? ForKernel(*until) : *until;
  return ::syscall(SYS_clock_nanosleep, id, flags, &at, left) == 0 ? 0 : errno;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t id,
                           const timespec* until) {
  using Function = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static auto* const real = Next<Function>("pthread_cond_clockwait");
  const timespec at = IsLate(id) ? ForKernel(*until) : *until;
  return real(condition, mutex, id, &at);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  using Function = int(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  static auto* const real = Next<Function>("pthread_cond_timedwait");
  // The clock is the condition's. Only a wall clock is that far from its zero.
  constexpr time_t kWall = 1'000'000'000;
  const timespec at = until->tv_sec < kWall ? ForKernel(*until) : *until;
  return real(condition, mutex, &at);
}

int timerfd_settime(int fd, int flags, const itimerspec* wanted, itimerspec* old) noexcept {
  itimerspec moved = *wanted;
  const bool is_set = wanted->it_value.tv_sec != 0 || wanted->it_value.tv_nsec != 0;
  constexpr time_t kWall = 1'000'000'000;
  if ((flags & TFD_TIMER_ABSTIME) != 0 && is_set && wanted->it_value.tv_sec < kWall) {
    moved.it_value = ForKernel(wanted->it_value);
  }
  return static_cast<int>(::syscall(SYS_timerfd_settime, fd, flags, &moved, old));
}
}
