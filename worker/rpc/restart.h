// A worker's process that cannot go on, because a thread of it is stuck or its GPU is lost, begins
// itself anew: the same program, arguments, environment and process id, another incarnation. The
// new process knows why.
#ifndef LONGHAUL_WORKER_RPC_RESTART_H_
#define LONGHAUL_WORKER_RPC_RESTART_H_

#include <functional>
#include <mutex>
#include <string>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// Why the process before this one gave itself up; WORKER_FAULT_NONE: it did not.
struct RestartCause {
  v1::WorkerFault fault = v1::WORKER_FAULT_NONE;
  std::string text;  // "has made no progress for 61 s in step 118: in the optimizer"
};
// Of this process. Forgets it, so that processes that it starts do not find it. Before any thread.
RestartCause TakeRestartCause();

class Restart {
 public:
  // `arguments` as main's, which live as long as the process. `say_last_words` is called before the
  // end and returns soon.
  Restart(char** arguments, std::function<void()> say_last_words);

  // Replaces this process. All open files, sockets and locks end with it, as if it had been killed.
  // Returns only after Disarm; a process that cannot be replaced exits with 1. Thread-safe.
  void operator()(const RestartCause& cause);
  // The daemon ends anyway. When it returns, no call is under way.
  void Disarm();

 private:
  char** const arguments_;
  const std::function<void()> say_last_words_;
  std::mutex mutex_;
  bool disarmed_ = false;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_RESTART_H_
