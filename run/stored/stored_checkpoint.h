// Checkpoints in an object store, from which another coordinator can go on:
//
//   s3://bucket/prefix/RUN/step-00000050/stage-0.params.safetensors
//   s3://bucket/prefix/RUN/step-00000050/stage-0.optim.safetensors.part-00000    a long file lies
//   in s3://bucket/prefix/RUN/step-00000050/stage-0.optim.safetensors.part-00001    pieces
//   s3://bucket/prefix/RUN/step-00000050/checkpoint.json                         written last
//
// A checkpoint without checkpoint.json (v1::StoredCheckpoint) does not exist. Workers write the
// files, and the coordinator writes checkpoint.json. Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::stored {

inline constexpr std::string_view kDescription = "checkpoint.json";
inline constexpr uint32_t kFormat = 1;
// A description that is longer is refused.
inline constexpr uint64_t kMostDescriptionBytes = 16 << 20;

// Returns the folder of a run's checkpoints below checkpoint.to, "s3://bucket/prefix/run/", and the
// folder of one checkpoint in there, "s3://bucket/prefix/run/step-00000050/".
std::string FolderOfRun(std::string_view to, std::string_view run);
std::string FolderOfStep(std::string_view folder_of_run, uint64_t step);
// Returns the step of a folder's name, "step-00000050" or "step-50"; nullopt: it is no such name.
std::optional<uint64_t> StepOf(std::string_view name);

// An object with a part of a file.
struct Piece {
  std::string name;     // relative to the checkpoint's folder
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};
// Returns the objects of a file, in order: one with the file's name, or pieces of `piece_bytes`,
// which must not be 0.
std::vector<Piece> PiecesOf(const v1::CheckpointFile& file, uint64_t piece_bytes);

// Returns whether `address` is one of the objects of the file in this folder.
bool IsObjectOf(std::string_view address, const v1::CheckpointFile& file,
                const v1::StoredFolder& folder);

// The text of checkpoint.json.
std::string ToJson(const v1::StoredCheckpoint& checkpoint);
// Reads and checks a text that may come from a stranger. kDataLoss: it is not of this form.
// kFailedPrecondition: its format is a newer one.
StatusOr<v1::StoredCheckpoint> FromJson(std::string_view json);
// Checks names, sizes, hashes and numbers, so that none of them leads out of a folder or past a
// bound. Errors as FromJson's. The run file in there is not looked at.
Status Check(const v1::StoredCheckpoint& checkpoint);

}  // namespace longhaul::stored
