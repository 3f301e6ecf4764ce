#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/shutdown.h"

namespace longhaul::cli {
namespace {

constexpr int kInterruptedExit = 130;

}  // namespace

Interrupt::Interrupt() {
  BlockShutdownSignals();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  wake_fd_ = eventfd(0, EFD_CLOEXEC);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  LH_CHECK(wake_fd_ >= 0 && signal_fd_ >= 0, "eventfd and signalfd work");
  thread_ = std::thread([this] { Watch(); });
}

Interrupt::~Interrupt() {
  const uint64_t one = 1;
  LH_CHECK(write(wake_fd_, &one, sizeof one) == sizeof one, "an eventfd takes a number");
  thread_.join();
  close(wake_fd_);
  close(signal_fd_);
}

void Interrupt::Watch() {
  while (true) {
    std::array<pollfd, 2> fds{{{wake_fd_, POLLIN, 0}, {signal_fd_, POLLIN, 0}}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if (fds[0].revents != 0) return;
    if (fds[1].revents == 0) continue;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof info) != sizeof info) continue;
    if (fired()) _exit(kInterruptedExit);
    Fire();
  }
}

bool Interrupt::fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

bool Interrupt::WaitFor(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return fired_; });
}

void Interrupt::Fire() {
  const std::lock_guard lock(mutex_);
  fired_ = true;
  // Under the lock, so that ~Scope waits for it. It only cancels a call: it blocks nobody.
  if (cancel_) std::exchange(cancel_, nullptr)();
  changed_.notify_all();
}

Interrupt::Scope::Scope(Interrupt& interrupt, std::function<void()> cancel)
    : interrupt_(interrupt) {
  const std::lock_guard lock(interrupt_.mutex_);
  if (interrupt_.fired_) {
    cancel();
  } else {
    interrupt_.cancel_ = std::move(cancel);
  }
}

Interrupt::Scope::~Scope() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.cancel_ = nullptr;
}

}  // namespace longhaul::cli
