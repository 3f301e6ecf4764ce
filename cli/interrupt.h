// Handles Ctrl-C while a command waits for the coordinator: cancels the current call, and the
// command reports what continues without the program. A second Ctrl-C ends the program at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace longhaul::cli {

// Create it before other threads start: it blocks SIGINT, SIGTERM and SIGPIPE in all of them. All
// methods are thread-safe.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool fired() const;
  // Waits at most `limit`. Returns whether the interrupt has occurred.
  bool WaitFor(absl::Duration limit);
  // Acts as if the signal had arrived.
  void Fire();

  // While a Scope lives, `cancel` runs once when the interrupt occurs, on another thread; at once
  // if it has already occurred. After the destructor `cancel` does not run and is not running. One
  // Scope at a time.
  class Scope {
   public:
    Scope(Interrupt& interrupt, std::function<void()> cancel);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupt& interrupt_;
  };

 private:
  void Watch();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool fired_ = false;
  std::function<void()> cancel_;
  int wake_fd_;
  int signal_fd_;
  std::thread thread_;
};

}  // namespace longhaul::cli
