// Queries of a checkpoint's manifest: which shards are where, and which are damaged. Pure
// functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// The workers in whose stores the file lies: "worker b", "worker b or c".
std::string HoldersText(const v1::CheckpointFile& file);

// The first shard that is known to be whole nowhere: worker, file, and what is wrong with it.
// Empty: there is no such shard.
std::string DamageOf(const v1::CheckpointManifest& manifest);

// The file holds parameters; other files hold the state of the optimizer.
inline bool HoldsParameters(const v1::CheckpointFile& file) {
  return file.name().ends_with(".params.safetensors");
}

// The checkpoint of this step; null: there is none.
const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step);

// As far as is known, the coordinator has a whole copy of the file, or two workers have one each.
bool IsSafe(const v1::CheckpointFile& file);
// The step of the newest checkpoint all of whose files are safe; 0: there is none.
uint64_t NewestSafe(const RunRecord& record);

// The newest checkpoint before step `before` that is not known to be damaged.
const v1::CheckpointManifest* NewestWhole(const RunRecord& record,
                                          uint64_t before = std::numeric_limits<uint64_t>::max());

// What a user may do about a run that has ended: "; longhaul submit run.yaml --resume ...".
std::string HowToResume(const RunRecord& record);

}  // namespace longhaul::coordinator
