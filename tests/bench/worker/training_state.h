// The state of a training that was broken off, in a file with which another call goes on: a
// safetensors file of the parameters and moments, whose metadata name the training.
//
// Threads: one. Errors: those of base/file.h; kInvalidArgument: the file is no such state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

struct TrainingState {
  std::string training;  // all that decides what it computes, for comparison
  StageSnapshot snapshot;
  uint64_t sent_bytes_a_step = 0;
  double seconds = 0;  // that it has taken so far
};

// Replaces the file whole.
Status SaveState(const std::string& path, const TrainingState& state);
// Returns nullopt if there is no file. kFailedPrecondition: it is the state of another training.
StatusOr<std::optional<TrainingState>> LoadState(const std::string& path,
                                                 const std::string& training);

}  // namespace longhaul::worker
