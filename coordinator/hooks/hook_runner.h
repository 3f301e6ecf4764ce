// Carries out hooks: writes the export of a checkpoint into a folder, and runs the program of the
// run file on it (hooks.on_checkpoint). The program runs as the user of this process, so whoever
// may name it may do what this process may do: see docs/design/threats.md.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/work_threads.h"
#include "coordinator/state/commands.h"
#include "coordinator/state/events.h"
#include "coordinator/store/blob_store.h"

namespace longhaul::coordinator {

class HookRunner {
 public:
  // Calls `done` once with each event::HookEnded, on a thread of this object or inside Add.
  // Failures are part of the event. `folder`: for exports, on the file system of `copies`; it is
  // made when the first hook runs, and what an earlier process left in it is removed then.
  // `blobs` (users' data) and `copies` (of checkpoint shards) must outlive this object.
  HookRunner(std::string folder, const BlobStore* blobs, const BlobStore* copies,
             std::function<void(Event)> done);
  // Calls Stop, and waits for exports that are being written.
  ~HookRunner();

  // Secures the files of the request, so that they may be dropped from `copies` afterwards, and
  // returns. Hooks of different runs run side by side, a few at a time.
  void Add(command::RunHook request);
  // Kills all programs. Drops waiting and later hooks, of which nothing is heard any more. False:
  // an export was still being written at the deadline.
  bool Stop(Deadline deadline);

 private:
  StatusOr<std::string> Secure(const command::RunHook& request);
  event::HookEnded Run(const command::RunHook& request, const std::string& folder) const;

  const std::string folder_;
  const BlobStore* const blobs_;
  const BlobStore* const copies_;
  const std::function<void(Event)> done_;
  std::atomic<bool> stopping_{false};
  bool is_clean_ = false;  // only for Secure
  WorkThreads threads_;
};

}  // namespace longhaul::coordinator
