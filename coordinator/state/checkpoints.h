// What a manifest says about the state of its shards. Pure.
#ifndef LONGHAUL_COORDINATOR_STATE_CHECKPOINTS_H_
#define LONGHAUL_COORDINATOR_STATE_CHECKPOINTS_H_

#include <cstdint>
#include <limits>
#include <string>

#include "coordinator/state/state.h"

namespace longhaul::coordinator {

// The name of the worker whose file it is.
std::string HolderOf(const v1::CheckpointManifest& manifest, const v1::CheckpointFile& file);

// Worker, file and what is wrong with it, of the first shard that is known to be nowhere whole;
// empty: there is none.
std::string DamageOf(const v1::CheckpointManifest& manifest);

// The newest checkpoint before step `before` that is not known to be damaged.
const v1::CheckpointManifest* NewestWhole(const RunRecord& record,
                                          uint64_t before = std::numeric_limits<uint64_t>::max());

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_CHECKPOINTS_H_
