// A program under test: started, listened to, waited for with a deadline, killed when the object
// ends. POSIX only. One thread.
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
  // Added to this process's environment.
  std::map<std::string, std::string> environment;
  // Folder to start in; empty: this process's.
  std::string folder;
};

class Subprocess {
 public:
  // `argv[0]` is a path or is found in PATH. Standard input is empty.
  static StatusOr<std::unique_ptr<Subprocess>> Start(const std::vector<std::string>& argv,
                                                     const SubprocessOptions& options = {});
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  // SIGKILL to the program and its children, and waits for its end.
  ~Subprocess();

  pid_t pid() const { return pid_; }
  void Signal(int signal);

  // Reads output until a line (of either stream) contains `text`; false at the deadline or at the
  // program's end.
  bool WaitForOutput(const std::string& text, Deadline deadline);
  // Reads output until the program has ended. The exit code, 128 + the signal that ended it, or
  // nothing at the deadline.
  std::optional<int> WaitForExit(Deadline deadline);

  // What came so far.
  const std::string& standard_output() const { return output_[0]; }
  const std::string& standard_error() const { return output_[1]; }

 private:
  Subprocess() = default;
  // False at the deadline; otherwise when `done` is true or both streams have ended.
  bool ReadUntil(const std::function<bool()>& done, Deadline deadline);

  pid_t pid_ = -1;
  int pipes_[2] = {-1, -1};
  std::string output_[2];
  std::optional<int> exit_code_;
};

}  // namespace longhaul::testing
