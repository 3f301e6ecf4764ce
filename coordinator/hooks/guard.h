// The process between the coordinator and a program that it runs (program.h). It is a fork of this
// process, and the parent of the program. When the program has ended, when the coordinator wants
// its end or has died itself, the guard kills the program and everything that it has left behind:
// its process group, and descendants in sessions of their own, whose parent the guard becomes.
//
// Linux only. Nothing here allocates memory or takes locks: a fork of a process with threads must
// not.
#pragma once

#include <sys/types.h>

#include <vector>

namespace longhaul::coordinator {

// What a guard and its program say over a pipe, each in one write.
struct GuardWord {
  enum class Kind : int {
    kNoFolder,   // `value`: errno of chdir
    kNoProgram,  // `value`: errno of execve
    kEnded,      // `value`: the program's status, as of waitpid
  };
  Kind kind = Kind::kEnded;
  int value = 0;
};

// All pointers are valid in the fork.
struct Guarded {
  std::vector<char*> paths;        // files to try, in this order; ends with null
  std::vector<char*> arguments;    // ends with null
  std::vector<char*> environment;  // ends with null
  const char* folder = nullptr;
  pid_t parent = -1;  // who calls fork
  int output = -1;    // standard output and error of the program
  int words = -1;     // gets GuardWord
};

// SIGTERM asks a guard to end.
constexpr int kGuardEnds = 15;

// Call this in the child after fork.
[[noreturn]] void BecomeGuard(const Guarded& guarded);

}  // namespace longhaul::coordinator
