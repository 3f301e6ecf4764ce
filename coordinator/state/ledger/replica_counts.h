// How many data-parallel replicas of its pipeline a run trains with, and how many it wants.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

// "1 replica", "3 replicas".
std::string ReplicaText(uint32_t count);

// Replicas that are wanted and do not train.
uint32_t ReplicasMissing(const Run& run);

// Logs that the run's plan has another number of replicas than `before`. `away`: workers that are
// missing, or "".
void LogReplicas(Ledger& ledger, const Run& run, uint32_t before, const std::string& away);

}  // namespace longhaul::coordinator
