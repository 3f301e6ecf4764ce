// A worker's state directory: its owner and its format. One process uses it at a time.
//
//   lock        locked by that process
//   format      a number; a newer format than this version knows is left untouched
//   worker-id   a UUID, made at the first start
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// One number for the whole folder. A folder without a number gets this one.
inline constexpr int kStateDirFormat = 1;

class StateDir {
 public:
  // Creates the folder if needed. kFailedPrecondition: another process uses it, or a newer version
  // wrote it; then the folder does not change.
  static StatusOr<StateDir> Open(const std::string& path);

  const std::string& worker_id() const { return worker_id_; }

 private:
  StateDir(UniqueFd lock, std::string worker_id)
      : lock_(std::move(lock)), worker_id_(std::move(worker_id)) {}

  UniqueFd lock_;
  std::string worker_id_;
};

}  // namespace longhaul::worker
