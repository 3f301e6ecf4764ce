// Simulates workers between two coordinators that both command, as after a copy of a state
// directory was started beside the original, after a takeover of which the first one has not heard,
// or after an old backup was put back. The second coordinator begins with older records of the
// first one. Workers lose their sessions, restart, and dial either. In the end one coordinator is
// left, with a newer term, and the run must train again.
//
// Checks that no report, link or secret of one assignment counts for another (invariants I1 to I5
// in the .cc). Uses the real state machine, the real decisions of workers (worker/agent/desk.h and
// obedience.h) and the real queue of reports. Threads: one. All times are virtual.
#pragma once

#include <cstdint>

#include "tests/sim/coordinator/simulation.h"

namespace longhaul::coordinator::sim {

// Equal seeds give equal simulations.
SimulationResult SimulateTwoLeaders(uint64_t seed, bool print);

}  // namespace longhaul::coordinator::sim
