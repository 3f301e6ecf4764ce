// Does long work for the state machine: tokenizes data, and hashes copies of shards. The work does
// not run on the shell's loop, but on threads that may wait for disks.
#pragma once

#include <functional>

#include "base/work_threads.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/prepare_data.h"

namespace longhaul::coordinator {

class Chores {
 public:
  // Calls `done` once with each result, on one of `threads`: event::DataPrepared or
  // event::CopiesChecked. Failures are part of these events. `copies`: the store of copies of
  // checkpoint shards. `copies` and `threads` must outlive this object. Stop `threads` before
  // destroying the object.
  Chores(DataPreparer preparer, const BlobStore* copies, WorkThreads* threads,
         std::function<void(Event)> done);

  // Add a job and return at once. Requests for the same data run one after the other. Thread-safe.
  void Add(command::PrepareData request);
  void Add(command::CheckCopies request);

 private:
  event::DataPrepared Prepare(const command::PrepareData& request) const;
  event::CopiesChecked Check(const command::CheckCopies& request) const;

  const DataPreparer preparer_;
  const BlobStore* const copies_;
  WorkThreads* const threads_;
  const std::function<void(Event)> done_;
};

}  // namespace longhaul::coordinator
