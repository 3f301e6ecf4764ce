// Queries of a checkpoint's manifest: the holders of shards, and damaged shards. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// Names the workers whose stores have the file: "worker b", "worker b or c".
std::string HoldersText(const v1::CheckpointFile& file);

// Returns the first shard without a known whole copy: worker, file, and fault. Empty: there is no
// such shard.
std::string DamageOf(const v1::CheckpointManifest& manifest);

// The file holds parameters; other files hold the state of the optimizer.
inline bool HoldsParameters(const v1::CheckpointFile& file) {
  return file.name().ends_with(".params.safetensors");
}

// Returns the checkpoint of this step; null: there is none.
const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step);

// True if, as far as is known, the coordinator has a whole copy of the file, or two workers have
// one each.
bool IsSafe(const v1::CheckpointFile& file);
// The step of the newest checkpoint all of whose files are safe; 0: there is none.
uint64_t NewestSafe(const RunRecord& record);

// Returns the newest checkpoint before step `before` that is not known to be damaged.
const v1::CheckpointManifest* NewestWhole(const RunRecord& record,
                                          uint64_t before = std::numeric_limits<uint64_t>::max());

// Tells users how to resume an ended run: "; longhaul submit run.yaml --resume ...".
std::string HowToResume(const RunRecord& record);

}  // namespace longhaul::coordinator
