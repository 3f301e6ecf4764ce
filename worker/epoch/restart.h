// Restarts a worker's process that cannot go on, because a thread is stuck or the GPU is lost. The
// new process has the same program, arguments, environment and process id, but a new incarnation
// number. It learns the reason.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// Why the process before this one restarted itself. WORKER_FAULT_NONE: it did not.
struct RestartCause {
  v1::WorkerFault fault = v1::WORKER_FAULT_NONE;
  std::string text;  // "has made no progress for 61 s in step 118: in the optimizer"
};
// Reads the cause from the environment, and removes it there, so that child processes do not see
// it. Call it before any thread starts. Cannot fail: a malformed cause reads as WORKER_FAULT_NONE.
RestartCause TakeRestartCause();

class Restart {
 public:
  // `arguments`: the arguments of main; they must live as long as the process. `say_last_words`
  // must not be empty. It is called by the thread that restarts, before the process is replaced,
  // and must return soon.
  Restart(char** arguments, std::function<void()> say_last_words);

  // Replaces this process, and does not return. All open files and sockets except stdin, stdout and
  // stderr are closed, and file locks are released. If the process cannot be replaced, it exits
  // with status 1. After Disarm this call does nothing. Thread-safe.
  void operator()(const RestartCause& cause);
  // Prevents later restarts. Does not return if one is in progress. Call it when the daemon ends.
  void Disarm();

 private:
  char** const arguments_;
  const std::function<void()> say_last_words_;
  std::mutex mutex_;
  bool disarmed_ = false;
};

}  // namespace longhaul::worker
