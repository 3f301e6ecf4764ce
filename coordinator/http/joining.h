// What the dashboard says to somebody who wants to add a worker: commands to copy.
#pragma once

#include <string>

namespace longhaul::coordinator {

// How workers reach the coordinator.
struct Joining {
  std::string address;     // at which it listens: "127.0.0.1:7070", "0.0.0.0:7070"
  std::string host;        // name of this machine
  std::string token_file;  // of this machine; empty: none is needed
  bool insecure = false;   // no TLS: all have the same token
};

// Returns {"here": COMMAND, "token": COMMAND or null, "there": COMMAND or null, "submit": COMMAND}:
// what starts a worker on the coordinator's machine; what makes a join token for other machines;
// what starts a worker there; and what submits a run here. "there" is null if the coordinator
// listens on a loopback address. Pure.
std::string JoiningJson(const Joining& joining);

}  // namespace longhaul::coordinator
