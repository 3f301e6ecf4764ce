// Does the state machine's work on folders of object stores (run/stored/stored_checkpoint.h), with
// the coordinator's credentials: looks whether files of checkpoints are there, writes descriptions
// of checkpoints, and deletes old ones. Threads of this object wait for the servers.
//
// Add is thread-safe and returns at once. The jobs of a run are done one after the other, in the
// order in which they were added.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/remote/settings.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "base/work_threads.h"
#include "coordinator/state/commands.h"
#include "coordinator/state/events.h"

namespace longhaul::coordinator {

class StoredFolders {
 public:
  // Calls `done` once for each request, on a thread of this object, with event::CopiesChecked or
  // event::CheckpointStored. These events also report failures. A TrimFolder has no event; its
  // failures are warnings in the log.
  StoredFolders(const remote::Settings& settings, std::function<void(Event)> done);

  void Add(command::CheckCopies request);  // with a folder
  void Add(command::StoreCheckpoint request);
  void Add(command::TrimFolder request);
  // Gives up what is under way, and waits until `deadline`. False: a thread was still busy.
  bool Stop(Deadline deadline);

 private:
  http::Call CallNow() const;
  event::CopiesChecked Check(const command::CheckCopies& request) const;
  Status Store(const command::StoreCheckpoint& request) const;
  Status Trim(const command::TrimFolder& request) const;
  // Returns what is wrong with each file; "": it is there with its length. kNotFound is no error.
  StatusOr<std::vector<std::string>> ProblemsOf(const v1::StoredFolder& folder,
                                                const std::vector<v1::CheckpointFile>& files) const;

  const remote::Store store_;
  const std::function<void(Event)> done_;
  std::atomic<bool> stopping_{false};
  WorkThreads threads_;  // last member: its threads use the others
};

}  // namespace longhaul::coordinator
