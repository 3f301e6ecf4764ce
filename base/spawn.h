// Starts another program whose input and output this process holds. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul {

enum class ChildGroup : uint8_t {
  kOurs,  // Ctrl-C at the terminal reaches the program, too
  kOwn,   // only this process decides when the program ends
};

// Starts `words`, the program and its arguments, with the files `in` and `out` as standard input
// and output. The program gets no other file of this process but standard error, and the usual
// handling of signals, even if this process blocks or ignores some. Returns the process to wait
// for. Errors: by errno; the message names the program.
StatusOr<pid_t> Spawn(std::vector<std::string> words, int in, int out, ChildGroup group);

}  // namespace longhaul
