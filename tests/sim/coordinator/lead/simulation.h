// Simulates two coordinators' seats, a witness and clients from a seed. Faults happen for a while.
// Then they end, two or three of the three voters stay, and somebody must lead again within a
// bound. Everything that a client was told must be true then. Equal seeds give equal simulations.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace longhaul::coordinator::lead_sim {

struct SimulationResult {
  std::string violation;  // the first failed check; empty: none
  std::string tail;       // if there is a violation: the newest notes
  uint64_t hash = 0;      // of all notes
  double virtual_seconds = 0;
  uint64_t commits = 0, terms = 0;
  std::map<std::string, uint64_t> seen;  // how often each situation was met
};

// `print`: print every note to standard output.
SimulationResult Simulate(uint64_t seed, bool print = false);

}  // namespace longhaul::coordinator::lead_sim
