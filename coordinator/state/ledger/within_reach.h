// Which files of checkpoints connected workers hold. Pure functions of the ledger.
#pragma once

#include <cstddef>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

bool IsConnected(const Ledger& ledger, const v1::ShardHolder& holder);
// A file that is whole, as far as is known, with nobody who is connected; nullptr: there is none.
const v1::CheckpointFile* UnreachableFile(const Ledger& ledger,
                                          const v1::CheckpointManifest& manifest);
// The newest whole checkpoint of which somebody who is connected holds each file.
const v1::CheckpointManifest* NewestWithinReach(const Ledger& ledger, const RunRecord& record);
// How many connected workers have the file, whole as far as is known.
size_t HoldersWithinReach(const Ledger& ledger, const v1::CheckpointFile& file);
// The first of these workers; null: there is none.
Worker* SourceOf(Ledger& ledger, const v1::CheckpointFile& file);

}  // namespace longhaul::coordinator
