// The files of a checkpoint, called shards: which workers hold each file, and which files a cell (a
// stage of one replica) of a plan needs.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// ---- Who holds a file. Holders are worker ids; "" is the coordinator. ------------------

// Returns the entry of the holder with this id; nullptr: this holder does not have the file.
const v1::ShardHolder* FindHolder(const v1::CheckpointFile& file, const std::string& holder);
// Returns whether the holder has the file, and no damage of this copy is known.
bool IsHeldBy(const v1::CheckpointFile& file, const std::string& holder);
// Returns whether the coordinator has an undamaged copy.
inline bool IsCopied(const v1::CheckpointFile& file) {
  return IsHeldBy(file, "");
}
// Returns whether the holder with this id is a folder of an object store (v1::ShardHolder).
inline bool IsFolder(std::string_view holder) {
  return holder.find("://") != std::string_view::npos;
}
// Returns the undamaged copy in an object store; nullptr: there is none.
const v1::ShardHolder* StoredCopyOf(const v1::CheckpointFile& file);
// Returns where a copy in an object store lies.
v1::StoredFolder FolderOf(const v1::ShardHolder& stored);
// Adds a holder without known damage, in place of the holder's old entry.
void AddHolder(const std::string& worker_id, const std::string& worker_name,
               v1::CheckpointFile* file);
void RemoveHolder(const std::string& worker_id, v1::CheckpointFile* file);

// Returns the ids of the workers that hold files of a checkpoint, including damaged files. Leaves
// out the coordinator and object stores.
std::set<std::string> HoldersOf(const v1::CheckpointManifest& manifest);

// ---- What cells need ------------------------------------------------------------------

// Returns the number of replicas that wrote the checkpoint.
uint32_t ReplicasOf(const v1::CheckpointManifest& manifest);
// Returns the files of a checkpoint that `cell` needs: files with tensors of the cell's layers,
// even if the files have tensors of other layers, too, and codec tables of the cell's boundaries.
// `replicas`: the number of replicas in the new plan. Leaves out codec tables of other replicas. If
// the checkpoint has the same number of replicas, and a stage with the same layers wrote the file,
// also leaves out other replicas' parts of the optimizer state.
std::vector<v1::CheckpointFile> FilesOfCell(const v1::CheckpointManifest& manifest,
                                            const Cell& cell, uint32_t replicas = 1);
// A file that must be sent to the worker `to` before the worker's cell can begin: neither this
// worker nor the coordinator has an undamaged copy. Another worker sends it, or `to` fetches it
// from an object store.
struct ShardMove {
  v1::CheckpointFile file;
  WorkerId to;
};
// Returns the moves that a plan with these cells needs.
std::vector<ShardMove> MovesFor(const v1::CheckpointManifest& manifest,
                                std::span<const Cell> cells);

}  // namespace longhaul::coordinator
