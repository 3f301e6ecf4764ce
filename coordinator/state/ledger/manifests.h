// What a manifest says about the state of its shards. Pure.
#ifndef LONGHAUL_COORDINATOR_STATE_LEDGER_MANIFESTS_H_
#define LONGHAUL_COORDINATOR_STATE_LEDGER_MANIFESTS_H_

#include <cstdint>
#include <limits>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// The workers in whose stores the file lies: "worker b", "worker b or c".
std::string HoldersText(const v1::CheckpointFile& file);

// Worker, file and what is wrong with it, of the first shard that is known to be nowhere whole;
// empty: there is none.
std::string DamageOf(const v1::CheckpointManifest& manifest);

// Of a stage; the others hold what its optimizer knows.
inline bool HoldsParameters(const v1::CheckpointFile& file) {
  return file.name().ends_with(".params.safetensors");
}

// Null: there is none of this step.
const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step);

// Whether it is held twice, or by the coordinator, as far as is known.
bool IsSafe(const v1::CheckpointFile& file);
// The step of the newest checkpoint all of whose files are safe; 0: there is none.
uint64_t NewestSafe(const RunRecord& record);

// The newest checkpoint before step `before` that is not known to be damaged.
const v1::CheckpointManifest* NewestWhole(const RunRecord& record,
                                          uint64_t before = std::numeric_limits<uint64_t>::max());

// What a user may do about a run that has ended: "; longhaul submit run.yaml --resume ...".
std::string HowToResume(const RunRecord& record);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_LEDGER_MANIFESTS_H_
