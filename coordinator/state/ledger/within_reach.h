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
// Returns how many connected workers have a whole copy of the file.
size_t HoldersWithinReach(const Ledger& ledger, const v1::CheckpointFile& file);
// Returns the first connected worker that has a whole copy of the file; null: there is none.
Worker* SourceOf(Ledger& ledger, const v1::CheckpointFile& file);

}  // namespace longhaul::coordinator
