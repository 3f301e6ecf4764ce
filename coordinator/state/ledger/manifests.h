// Queries of a checkpoint's manifest, which lists the checkpoint's files (shards) with their
// holders and known damage. Pure functions. Results point into the record and are valid until its
// list of checkpoints changes.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// Names the workers that hold the file, including workers with damaged copies: "worker b", "worker
// b or c". "": no worker holds the file.
std::string HoldersText(const v1::CheckpointFile& file);

// Describes the first shard of which no undamaged copy is known: worker, file and fault. "": each
// shard has an undamaged copy, as far as is known.
std::string DamageOf(const v1::CheckpointManifest& manifest);

// Returns whether the file holds parameters. Other files hold optimizer state or codec tables.
inline bool HoldsParameters(const v1::CheckpointFile& file) {
  return file.name().ends_with(".params.safetensors");
}

// Returns the checkpoint of this step; null: there is none.
const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step);

// Returns whether the coordinator has an undamaged copy of the file, or two of the other holders
// have one, as far as is known.
bool IsSafe(const v1::CheckpointFile& file);
// Returns the step of the newest checkpoint all of whose files are safe; 0: there is none.
uint64_t NewestSafe(const RunRecord& record);
// Returns whether an object store has an undamaged copy of each file, as far as is known.
bool IsStored(const v1::CheckpointManifest& manifest);
// Returns the step of the newest checkpoint that is stored; 0: there is none.
uint64_t NewestStored(const RunRecord& record);

// Returns the newest checkpoint before step `before` that is not known to be damaged; null: there
// is none.
const v1::CheckpointManifest* NewestWhole(const RunRecord& record,
                                          uint64_t before = std::numeric_limits<uint64_t>::max());

// Returns the end of a sentence that tells users how to resume an ended run: "; longhaul submit
// run.yaml --resume ...".
std::string HowToResume(const RunRecord& record);

}  // namespace longhaul::coordinator
