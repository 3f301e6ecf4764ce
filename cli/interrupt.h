// Handles Ctrl-C while a command waits for the coordinator: cancels the current call. The command
// then says what continues without this program. A second Ctrl-C ends the program at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace longhaul::cli {

// Create it before other threads start, because it blocks SIGINT and SIGTERM in the calling thread
// and in threads that start later. It also ignores SIGPIPE. All methods are thread-safe.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool fired() const;
  // Waits for the interrupt, at most `limit`, which must be finite. Returns whether the interrupt
  // has occurred.
  bool WaitFor(absl::Duration limit);
  // Acts as if the signal had arrived.
  void Fire();

  // While a Scope lives, `cancel` runs once when the interrupt occurs, on another thread. If the
  // interrupt has already occurred, the constructor runs `cancel`. The destructor waits for a
  // running `cancel`. `cancel` must not block or call the Interrupt. One Scope at a time.
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
