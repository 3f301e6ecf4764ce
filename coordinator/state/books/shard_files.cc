#include "coordinator/state/books/shard_files.h"

#include <algorithm>
#include <utility>

namespace longhaul::coordinator {
namespace {

// The cell whose tensors the file has, in the split that wrote the checkpoint. Null: there is none.
const v1::Cell* WriterOf(const v1::CheckpointManifest& manifest, const v1::CheckpointFile& file) {
  const auto writer = std::ranges::find_if(
      manifest.cells(), [&](const v1::Cell& cell) { return cell.id().stage() == file.stage(); });
  return writer == manifest.cells().end() ? nullptr : &*writer;
}

uint32_t ReplicaIn(const v1::Cell& cell) {
  return cell.id().replica();
}
uint32_t ReplicaIn(const Cell& cell) {
  return cell.id.replica;
}
template <typename Cells>
uint32_t ReplicasIn(const Cells& cells) {
  uint32_t replicas = 1;
  for (const auto& cell : cells) replicas = std::max(replicas, ReplicaIn(cell) + 1);
  return replicas;
}

// A table of what the codec of a boundary has learned, not of parameters.
bool HoldsTables(const v1::CheckpointFile& file) {
  return file.name().ends_with(".tables.safetensors");
}

}  // namespace

const v1::ShardHolder* FindHolder(const v1::CheckpointFile& file, const std::string& holder) {
  const auto found =
      std::find_if(file.holders().begin(), file.holders().end(),
                   [&](const v1::ShardHolder& one) { return one.worker_id() == holder; });
  return found == file.holders().end() ? nullptr : &*found;
}

bool IsHeldBy(const v1::CheckpointFile& file, const std::string& holder) {
  const v1::ShardHolder* found = FindHolder(file, holder);
  return found != nullptr && found->problem().empty();
}

const v1::ShardHolder* StoredCopyOf(const v1::CheckpointFile& file) {
  const auto found = std::ranges::find_if(file.holders(), [](const v1::ShardHolder& holder) {
    return IsFolder(holder.worker_id()) && holder.problem().empty();
  });
  return found == file.holders().end() ? nullptr : &*found;
}

v1::StoredFolder FolderOf(const v1::ShardHolder& stored) {
  v1::StoredFolder folder;
  folder.set_address(stored.worker_id());
  folder.set_piece_bytes(stored.piece_bytes());
  return folder;
}

void AddHolder(const std::string& worker_id, const std::string& worker_name,
               v1::CheckpointFile* file) {
  RemoveHolder(worker_id, file);
  v1::ShardHolder& holder = *file->add_holders();
  holder.set_worker_id(worker_id);
  holder.set_worker_name(worker_name);
}

void RemoveHolder(const std::string& worker_id, v1::CheckpointFile* file) {
  auto& holders = *file->mutable_holders();
  holders.erase(std::remove_if(holders.begin(), holders.end(),
                               [&](const auto& one) { return one.worker_id() == worker_id; }),
                holders.end());
}

std::set<std::string> HoldersOf(const v1::CheckpointManifest& manifest) {
  std::set<std::string> holders;
  for (const v1::CheckpointFile& file : manifest.files()) {
    for (const v1::ShardHolder& holder : file.holders()) holders.insert(holder.worker_id());
  }
  holders.erase("");
  std::erase_if(holders, IsFolder);
  return holders;
}

uint32_t ReplicasOf(const v1::CheckpointManifest& manifest) {
  return ReplicasIn(manifest.cells());
}

std::vector<v1::CheckpointFile> FilesOfCell(const v1::CheckpointManifest& manifest,
                                            const Cell& cell, uint32_t replicas) {
  std::vector<v1::CheckpointFile> files;
  const bool same_replicas = ReplicasOf(manifest) == replicas;
  for (const v1::CheckpointFile& file : manifest.files()) {
    const v1::Cell* writer = WriterOf(manifest, file);
    if (writer == nullptr) continue;
    const uint32_t end = writer->first_layer() + writer->layers();
    // The embedding goes with the first layer, norm and head with the last one.
    const bool overlaps = writer->first_layer() < cell.layers.end() && cell.layers.first < end;
    // The boundary below its writer, whose two sides go on with it where it stays a boundary.
    const bool meets = cell.layers.first == end || cell.layers.end() == end;
    const bool of_other = file.has_replica() && file.replica() != cell.id.replica;
    const bool same_layers =
        writer->first_layer() == cell.layers.first && writer->layers() == cell.layers.count;
    if (of_other && (HoldsTables(file) || (same_replicas && same_layers))) continue;
    if (HoldsTables(file) ? meets : overlaps) files.push_back(file);
  }
  return files;
}

std::vector<ShardMove> MovesFor(const v1::CheckpointManifest& manifest,
                                std::span<const Cell> cells) {
  std::vector<ShardMove> moves;
  const uint32_t replicas = ReplicasIn(cells);
  for (const Cell& cell : cells) {
    for (v1::CheckpointFile& file : FilesOfCell(manifest, cell, replicas)) {
      if (IsHeldBy(file, cell.worker.value()) || IsCopied(file)) continue;
      moves.push_back({std::move(file), cell.worker});
    }
  }
  return moves;
}

}  // namespace longhaul::coordinator
