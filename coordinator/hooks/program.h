// Runs a program of a user to its end: with a small environment, an output that is read up to a
// bound, and a time limit. Linux only.
//
// The program has a process group of its own, and a guard as its parent (guard.h). At the limit, or
// when the program has ended, everything that it has left behind is killed. The same happens when
// this process dies.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul::coordinator {

struct Program {
  std::vector<std::string> arguments;    // the first is a path, or a name to find in PATH
  std::vector<std::string> environment;  // "NAME=value": all of it
  std::string folder;                    // the working directory
  absl::Duration limit;
  size_t output_limit = 64 << 10;  // the end of the output that is kept, in bytes
};

struct ProgramEnd {
  bool ok = false;     // exit code 0
  std::string how;     // "ended with exit code 3"; for people
  std::string output;  // the end of standard output and standard error together
};

// Blocks until the program has ended. `given_up` is asked several times a second; true kills the
// program. Never fails: a program that cannot start has ended, too. Thread-safe.
ProgramEnd RunProgram(const Program& program, const std::function<bool()>& given_up);

// The environment for programs that strangers name: PATH, HOME, LANG and LC_ALL of this process, as
// far as they are set, and `more`. Nothing else, so no keys and tokens.
std::vector<std::string> SmallEnvironment(std::vector<std::string> more);

}  // namespace longhaul::coordinator
