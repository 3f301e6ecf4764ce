#include "coordinator/state/ledger/replica_counts.h"

#include <fmt/format.h>

#include "planner/replicas.h"

namespace longhaul::coordinator {

std::string ReplicaText(uint32_t count) {
  return count == 1 ? "1 replica" : fmt::format("{} replicas", count);
}

uint32_t ReplicasMissing(const Run& run) {
  if (!run.record.plan) return 0;
  const uint32_t wanted = run.record.ReplicasWanted(), now = ReplicasOf(run.assignment());
  return wanted > now ? wanted - now : 0;
}

void LogReplicas(Ledger& ledger, const Run& run, uint32_t before, const std::string& away) {
  const uint32_t now = ReplicasOf(run.assignment());
  if (now == before) return;
  const uint64_t step = run.assignment().start_step;
  ledger.Log(&run, "replicas",
             "{} of {} from step {} on, {} before{}: a step reads {} microbatches instead of "
             "{}, from microbatch {} on; losses are not those of an unbroken run",
             now, ReplicaText(run.record.ReplicasWanted()), step + 1, before,
             away.empty() ? std::string() : fmt::format(" ({} away)", away),
             uint64_t{now} * run.record.spec.train.microbatches,
             uint64_t{before} * run.record.spec.train.microbatches, MicrobatchesAt(run, step));
}

}  // namespace longhaul::coordinator
