// Names of assignments, and the secrets of the links between workers. A secret follows from the
// run's secret and the hash of the assignment, so workers with different assignments never share
// one, even if two coordinators gave both assignments the same epoch. Before there is an
// assignment, and for transfers of files, Ledger::DraftTag takes the place of the hash. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "coordinator/state/options.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Fills in the leader and the hash. Call it once for each new assignment, when everything else of
// the assignment is decided. Later changes of addresses and settings keep the hash.
void SealAssignment(const Lead& lead, Assignment* assignment);
// Returns whether the assignment has a hash. Those that older versions stored have none.
bool IsSealed(const Assignment& assignment);

// Secret of links to workers that are not neighbours.
std::string LinksSecret(std::string_view link_secret, std::string_view hash);
// Each edge has a secret of its own, so a worker at its end can open no other edge.
std::string EdgeSecret(std::string_view link_secret, std::string_view hash, EdgeId edge);
std::string ProbeSecret(std::string_view link_secret, std::string_view tag, uint64_t probe);
std::string TransferSecret(std::string_view link_secret, std::string_view tag, uint64_t check);

}  // namespace longhaul::coordinator
