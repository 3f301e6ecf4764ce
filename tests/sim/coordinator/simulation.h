// One seeded simulation: a coordinator, its store, workers, networks and users; faults for a while;
// then none, and everything must come to its end.
//
// Single-threaded, no real time, no real I/O with the model of the store: equal options give the
// same simulation, event by event.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace longhaul::coordinator::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  std::string real_store_folder;  // empty: the model of the store
  bool print = false;             // every note, as it is made
};

struct SimulationResult {
  std::string violation;  // empty: all went well
  std::string tail;       // with a violation: the newest notes
  uint64_t hash = 0;      // of all notes
  uint64_t notes = 0;
  double virtual_seconds = 0;
  // How often situations came up.
  std::map<std::string, uint64_t> seen;
};

SimulationResult Simulate(const SimulationOptions& options);

// For a process that dies in a simulation (a check of the state machine itself): which seed it is
// at, and its newest notes, to stderr.
void DescribeTheOneAtHand();

}  // namespace longhaul::coordinator::sim
