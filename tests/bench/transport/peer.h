// One end of the measured link, in a process of its own.
#pragma once

#include <string>

#include "base/status.h"

namespace longhaul::bench {

struct PeerOptions {
  std::string transport = "ucx";  // or "grpc"
  bool sealed = false;
  std::string bind;   // "10.77.0.1:0"
  std::string dial;   // the other's address; empty: waits to be dialled and prints its address
  bool send = false;  // tensors' worth of bulk frames, as fast as they go
  double seconds = 5;
  double warm_up_seconds = 0.3;
};

// Prints "address <address>" (where it is dialled), then one line of JSON: payload bytes sent and
// received, seconds, CPU seconds, what the link is, and, where it dials, the median round trip of
// control frames.
Status RunPeer(const PeerOptions& options);

}  // namespace longhaul::bench
