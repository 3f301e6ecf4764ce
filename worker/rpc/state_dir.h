// A worker's folder: whose it is and in what format. One process at a time uses it.
//
//   lock        held by that process
//   format      a number; what is newer than this version knows is left as it is
//   worker-id   a UUID, made at the first start
#ifndef LONGHAUL_WORKER_RPC_STATE_DIR_H_
#define LONGHAUL_WORKER_RPC_STATE_DIR_H_

#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// Of everything in it together. A folder without one is of format 1, from before there was a
// number.
inline constexpr int kStateDirFormat = 1;

class StateDir {
 public:
  // Makes it where it is missing. kFailedPrecondition where another process uses it or a newer
  // version has written it; then nothing in it has been changed.
  static StatusOr<StateDir> Open(const std::string& path);

  const std::string& worker_id() const { return worker_id_; }

 private:
  StateDir(UniqueFd lock, std::string worker_id)
      : lock_(std::move(lock)), worker_id_(std::move(worker_id)) {}

  UniqueFd lock_;
  std::string worker_id_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_STATE_DIR_H_
