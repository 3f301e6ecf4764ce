// Starts a program under test, collects its output and waits for it with a deadline. POSIX only.
// Threads: one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul::testing {

struct SubprocessOptions {
  // Variables for the program, besides this process's environment. Start sets them in this process
  // for a moment and then unsets them, so other threads must not read the environment meanwhile.
  // Name no variable that this process needs itself.
  std::map<std::string, std::string> environment;
  // Working directory of the program; empty: this process's.
  std::string folder;
};

class Subprocess {
 public:
  // Starts argv[0], a path or a name to find in PATH. Standard input is empty. kInvalidArgument:
  // `argv` is empty. Other errors: the system cannot make a process. A program that does not exist
  // is no error here: the child exits with 127.
  static StatusOr<std::unique_ptr<Subprocess>> Start(const std::vector<std::string>& argv,
                                                     const SubprocessOptions& options = {});
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  // Kills the program and its children (its process group) with SIGKILL, and waits for the program.
  ~Subprocess();

  pid_t pid() const { return pid_; }
  // Sends `signal` to the program, but not to its children. Does nothing after WaitForExit has
  // returned an exit code.
  void Signal(int signal);

  // Reads output until standard output or standard error contains `text`, which may have come
  // earlier. False: `text` did not come before the deadline, or both streams ended without it.
  bool WaitForOutput(const std::string& text, Deadline deadline);
  // Reads output until the program has ended. Returns its exit code, or 128 + N if signal N ended
  // the program. nullopt: the program still runs at the deadline.
  std::optional<int> WaitForExit(Deadline deadline);

  // The output that WaitForOutput and WaitForExit have read so far.
  const std::string& standard_output() const { return output_[0]; }
  const std::string& standard_error() const { return output_[1]; }

 private:
  Subprocess() = default;
  // Reads output until `done` returns true or both streams have ended. False: the deadline came
  // first.
  bool ReadUntil(const std::function<bool()>& done, Deadline deadline);

  pid_t pid_ = -1;
  int pipes_[2] = {-1, -1};
  std::string output_[2];
  std::optional<int> exit_code_;
};

}  // namespace longhaul::testing
