// Names the machine that this process runs on.
#pragma once

#include <string>

namespace longhaul {

// Returns the id of the kernel's boot. It is the same for all processes, network namespaces and
// containers of one machine, differs between any two machines, and changes when the machine boots.
// Processes with the same id have the same monotonic clock. Empty: the system does not tell.
std::string MachineId();

}  // namespace longhaul
