// Progress lines and Ctrl-C for the `cluster` commands.
#pragma once

#include <signal.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// Progress on standard error: one line that changes in place on a terminal, and elsewhere a new
// line each time the text changes. For one thread.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  void Show(std::string_view text);
  // Erases the current line on a terminal, so that other output can take its place.
  void Clear();

 private:
  const bool terminal_;
  bool dirty_ = false;
  std::string last_;
};

// While this object lives, SIGINT, SIGTERM and SIGHUP are blocked and do not end the process. A
// signal that no Check has seen takes effect when the object is destroyed. Create, use and destroy
// the object on the main thread, before other threads start.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  // Returns kCancelled if SIGINT, SIGTERM or SIGHUP has arrived since the constructor, else OK.
  // Does not wait.
  Status Check();

 private:
  sigset_t signals_;
  sigset_t before_;
  bool interrupted_ = false;
};

}  // namespace longhaul
