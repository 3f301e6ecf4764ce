// Restarts a worker's process that cannot go on, because a thread is stuck or its GPU is lost: the
// same program, arguments, environment and process id, with a new incarnation number. The new
// process learns the reason.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// Why the previous process ended itself; WORKER_FAULT_NONE: it did not.
struct RestartCause {
  v1::WorkerFault fault = v1::WORKER_FAULT_NONE;
  std::string text;  // "has made no progress for 61 s in step 118: in the optimizer"
};
// Returns this process's cause, and clears it so that child processes do not see it. Call it before
// any thread starts.
RestartCause TakeRestartCause();

class Restart {
 public:
  // `arguments`: main's, alive as long as the process. `say_last_words` is called before the end
  // and must return soon.
  Restart(char** arguments, std::function<void()> say_last_words);

  // Replaces this process. All open files, sockets and locks end with it, as if it had been killed.
  // Returns only after Disarm; exits with 1 if the process cannot be replaced. Thread-safe.
  void operator()(const RestartCause& cause);
  // Call it when the daemon ends. After it returns, no restart is in progress.
  void Disarm();

 private:
  char** const arguments_;
  const std::function<void()> say_last_words_;
  std::mutex mutex_;
  bool disarmed_ = false;
};

}  // namespace longhaul::worker
