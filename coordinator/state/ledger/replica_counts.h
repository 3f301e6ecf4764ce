// The number of data-parallel replicas that a run trains with, and the number that it wants.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

// "1 replica", "3 replicas".
std::string ReplicaText(uint32_t count);

// Returns how many of the wanted replicas the run's plan lacks; 0: none, or there is no plan.
uint32_t ReplicasMissing(const Run& run);

// Logs an event if the run's plan has another number of replicas than `before`. The run must have a
// plan. `away`: names of the missing workers, or "".
void LogReplicas(Ledger& ledger, const Run& run, uint32_t before, const std::string& away);

}  // namespace longhaul::coordinator
