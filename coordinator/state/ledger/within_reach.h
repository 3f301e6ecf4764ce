// Finds the files of checkpoints that can be fetched now, from connected workers, from the
// coordinator or from an object store, which counts as always there. "Whole" means without known
// damage. Pure functions of the ledger.
#pragma once

#include <cstddef>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

// Returns whether the holder is a connected worker. False for the coordinator.
bool IsConnected(const Ledger& ledger, const v1::ShardHolder& holder);
// Returns the first file of which neither the coordinator, an object store nor a connected worker
// has a whole copy; nullptr: there is none.
const v1::CheckpointFile* UnreachableFile(const Ledger& ledger,
                                          const v1::CheckpointManifest& manifest);
// Returns the newest checkpoint of which all files are whole and can be fetched now; nullptr: there
// is none.
const v1::CheckpointManifest* NewestWithinReach(const Ledger& ledger, const RunRecord& record);
// Returns whether the two workers are known to be on different machines.
bool AreApart(const Worker& a, const Worker& b);
// Returns whether workers of the run's stages are on different machines.
bool SpansMachines(const Ledger& ledger, const Run& run);
// Returns whether two connected workers that stay have a whole copy of the file; with `apart`, two
// that are on different machines.
bool IsHeldTwice(const Ledger& ledger, const v1::CheckpointFile& file, bool apart);
// Returns the first connected worker that has a whole copy of the file: one that stays, else one
// that is leaving and has not been let go. Null: there is none.
Worker* SourceOf(Ledger& ledger, const v1::CheckpointFile& file);

}  // namespace longhaul::coordinator
