// What two simulated coordinators with one witness share: the network, the changes of their stores
// by chain, and the history of what was committed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/state/state.h"
#include "coordinator/store/journal_core.h"
#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/lead/world.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

using lead_sim::kA;
using lead_sim::kB;
using lead_sim::kClientCount;
using lead_sim::kClients;
using lead_sim::kW;
using lead_sim::Place;

// A change of the store, as one coordinator made it.
struct PairChange {
  NamedChange named;
  std::vector<Write> writes;
  bool sets_witness = false;  // from now on the witness counts
  bool important = true;      // false: a leader that is alone does not sync it
};

struct PairWorld {
  PairWorld(World* the_world, Checkers* the_checkers, StateOptions the_options)
      : world(the_world),
        checkers(the_checkers),
        options(std::move(the_options)),
        lead(&the_world->timeline, &the_world->random) {}

  // Workers come behind the clients.
  static size_t PlaceOf(size_t worker) { return kClients + kClientCount + worker; }
  const PairChange& ChangeOf(const History& history) const { return *changes.at(history.chain); }
  // The leader `who` has committed all of `log`. What is new goes to the checkers.
  void Committed(const std::string& who, uint64_t term, const Tenure& tenure,
                 std::span<const lead_sim::Row> log) {
    const uint64_t known = lead.checker.committed();
    lead.checker.Committed(who, term, tenure, log);
    newest_term = std::max(newest_term, term);
    if (!Fine()) return;
    for (uint64_t i = known; i < log.size(); ++i) {
      const PairChange& change = ChangeOf(log[i].history);
      if (!change.writes.empty()) checkers->Stored(change.writes);
    }
  }
  // A leader that was alone has lost its committed changes behind `number` of `log`.
  void Lost(uint64_t number, std::span<const lead_sim::Row> log) {
    Saw("unsynced changes lost");
    lead.checker.LostUnsynced(number);
    (void)log;
  }
  // False: a check has failed.
  bool Fine() {
    if (!lead.violation.empty()) world->Violate("two seats: {}", lead.violation);
    return world->violation.empty();
  }
  // A fault of the coordinators lasts until then.
  void Blame(MonoTime until) {
    MonoTime& fault = world->fault_of["coordinator"];
    fault = std::max(fault, until);
  }
  void Saw(const std::string& what) { ++lead.seen[what]; }

  World* const world;
  Checkers* const checkers;
  const StateOptions options;
  lead_sim::World lead;  // its network, and its checker of histories
  std::map<uint64_t, std::shared_ptr<const PairChange>> changes;  // by chain
  // Called when the coordinator at `place` begins a term, before it serves.
  std::function<void(Place place)> new_term;
  // Called when the coordinator at `place` counts both as in sync, and has a witness.
  std::function<void(Place place)> both_in_sync;
  uint64_t newest_term = 0;  // in which a change was committed
  uint64_t last_tenure = 0, last_stream = 0, last_change = 0;
};

}  // namespace longhaul::coordinator::sim
