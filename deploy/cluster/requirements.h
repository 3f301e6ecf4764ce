// Checks that the machine can run a local cluster.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

struct Machine {
  uint64_t capabilities = 0;  // effective; one bit each, as in <linux/capability.h>
  bool root = false;
  bool has_ip = false;  // the tool ip(8) is installed
  bool has_tc = false;  // the tool tc(8) is installed
};

Machine ThisMachine();

// Checks that the machine has the rights and tools that a local cluster needs. kFailedPrecondition:
// something is missing; the message names everything that is missing, and how to get it. Pure.
Status CheckRequirements(const Machine& machine);

}  // namespace longhaul
