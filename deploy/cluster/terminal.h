// Progress lines and Ctrl-C for the cluster's commands.
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
  // Ends the current line, so that other output starts on a new one.
  void Clear();

 private:
  const bool terminal_;
  bool dirty_ = false;
  std::string last_;
};

// While this object lives, SIGINT, SIGTERM and SIGHUP are held back and do not end the process. A
// signal that no Check has seen takes effect when the object is destroyed. Create it before other
// threads start.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  // Returns kCancelled once SIGINT, SIGTERM or SIGHUP has arrived, else OK.
  Status Check();

 private:
  sigset_t signals_;
  sigset_t before_;
  bool interrupted_ = false;
};

}  // namespace longhaul
