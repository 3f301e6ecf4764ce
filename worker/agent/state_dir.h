// A worker's state directory. One process at a time uses it and holds its lock.
//
//   lock        file lock, held while a process uses the directory
//   format      a number; this version changes nothing in a directory with a newer format
//   worker-id   a UUID, made at the first start
//   term        the leader that the worker obeyed last (term_file.h)
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// The format of the whole directory. A directory without the file `format` gets this number.
inline constexpr int kStateDirFormat = 1;

class StateDir {
 public:
  // Creates the directory if needed, and holds its lock as long as the result lives.
  // kFailedPrecondition: another process uses the directory, a newer version wrote it, or one of
  // its files is damaged. Other errors: those of the file system.
  static StatusOr<StateDir> Open(const std::string& path);

  const std::string& worker_id() const { return worker_id_; }

 private:
  StateDir(UniqueFd lock, std::string worker_id)
      : lock_(std::move(lock)), worker_id_(std::move(worker_id)) {}

  UniqueFd lock_;
  std::string worker_id_;
};

}  // namespace longhaul::worker
