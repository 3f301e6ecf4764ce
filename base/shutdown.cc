#include "base/shutdown.h"

#include <csignal>
#include <ctime>

namespace longhaul {
namespace {

sigset_t ShutdownSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockShutdownSignals() {
  sigset_t signals = ShutdownSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int WaitForShutdownSignal(absl::Duration limit) {
  const sigset_t signals = ShutdownSignals();
  const timespec timeout = absl::ToTimespec(limit);
  const int signal = sigtimedwait(&signals, nullptr, &timeout);
  return signal > 0 ? signal : 0;
}

}  // namespace longhaul
