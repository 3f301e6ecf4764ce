// Runs one simulation from a seed: a coordinator, its store, workers, networks and users. Faults
// happen for a while. Then they end, and all runs must train or end as users asked.
//
// A simulation uses one thread and virtual time. Equal options give the same simulation, event by
// event. Without a real store it does no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace longhaul::coordinator::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  std::string real_store_folder;  // empty folder for the real store; "": a model in memory
  // Two coordinators and a witness instead of one coordinator, and their faults.
  bool pair = false;
  bool print = false;  // print every note of the timeline to standard output
};

struct SimulationResult {
  std::string violation;  // the first failed check; empty: none
  std::string tail;       // if there is a violation: the newest notes of the timeline
  uint64_t hash = 0;      // hash of all notes, equal for equal simulations
  uint64_t notes = 0;     // number of notes
  double virtual_seconds = 0;
  // How often each kind of situation occurred, by its name or by a part of the event's text.
  std::map<std::string, uint64_t> seen;
};

SimulationResult Simulate(const SimulationOptions& options);

// Prints the seed and the newest notes of the simulation that runs now to standard error. For a
// process that dies in a simulation, because a check inside the state machine failed. Does nothing
// if none runs.
void DescribeTheOneAtHand();

}  // namespace longhaul::coordinator::sim
