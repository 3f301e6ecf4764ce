// The files of checkpoints that connected workers hold. Pure functions of the ledger.
#pragma once

#include <cstddef>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

bool IsConnected(const Ledger& ledger, const v1::ShardHolder& holder);
// Returns a file without a connected holder that has it whole, as far as is known; nullptr: there
// is none.
const v1::CheckpointFile* UnreachableFile(const Ledger& ledger,
                                          const v1::CheckpointManifest& manifest);
// Returns the newest whole checkpoint for which every file has a connected holder.
const v1::CheckpointManifest* NewestWithinReach(const Ledger& ledger, const RunRecord& record);
// Returns how many connected workers have the file, whole as far as is known.
size_t HoldersWithinReach(const Ledger& ledger, const v1::CheckpointFile& file);
// Returns the first of these workers; null: there is none.
Worker* SourceOf(Ledger& ledger, const v1::CheckpointFile& file);

}  // namespace longhaul::coordinator
