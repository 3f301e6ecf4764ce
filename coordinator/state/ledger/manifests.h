// Queries of a checkpoint's manifest: the holders of shards, and damaged shards. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// Names the workers that hold the file, also those whose copies are damaged: "worker b", "worker b
// or c". "": none.
std::string HoldersText(const v1::CheckpointFile& file);

// Describes the first shard of which no whole copy is known: worker, file and fault. "": a whole
// copy of every shard is known.
std::string DamageOf(const v1::CheckpointManifest& manifest);

// Returns whether the file holds parameters. Other files hold optimizer state or codec tables.
inline bool HoldsParameters(const v1::CheckpointFile& file) {
  return file.name().ends_with(".params.safetensors");
}

// Returns the checkpoint of this step; null: there is none.
const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step);

// Returns whether the coordinator or at least two workers have a whole copy of the file, as far as
// is known.
bool IsSafe(const v1::CheckpointFile& file);
// Returns the step of the newest checkpoint all of whose files are safe; 0: there is none.
uint64_t NewestSafe(const RunRecord& record);

// Returns the newest checkpoint before step `before` that is not known to be damaged; null: there
// is none.
const v1::CheckpointManifest* NewestWhole(const RunRecord& record,
                                          uint64_t before = std::numeric_limits<uint64_t>::max());

// Returns the end of a sentence that tells users how to resume an ended run: "; longhaul submit
// run.yaml --resume ...".
std::string HowToResume(const RunRecord& record);

}  // namespace longhaul::coordinator
