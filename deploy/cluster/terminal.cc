#include "deploy/cluster/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace longhaul {

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  Clear();
}

void ProgressLine::Show(std::string_view text) {
  if (text == last_) return;
  last_ = text;
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}", text);
    dirty_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (dirty_) fmt::print(stderr, "\r\033[K");
  dirty_ = false;
  std::fflush(stderr);
}

InterruptGuard::InterruptGuard() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

InterruptGuard::~InterruptGuard() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Status InterruptGuard::Check() {
  const timespec now{};
  if (sigtimedwait(&signals_, nullptr, &now) > 0) interrupted_ = true;
  return interrupted_ ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace longhaul
