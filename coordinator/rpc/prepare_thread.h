// What takes long, off the loop: tokenizing data, hashing copies of shards. One thread, one chore
// at a time, in order.
#ifndef LONGHAUL_COORDINATOR_RPC_PREPARE_THREAD_H_
#define LONGHAUL_COORDINATOR_RPC_PREPARE_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/prepare_data.h"

namespace longhaul::coordinator {

class PrepareThread {
 public:
  // `done` runs on this thread, not after Stop. `copies` must outlive this.
  PrepareThread(DataPreparer preparer, const BlobStore* copies, std::function<void(Event)> done);
  // Waits until the chore under way is done.
  ~PrepareThread();

  void Add(command::PrepareData request);
  void Add(command::CheckCopies request);
  // Drops what waits. False: a chore was still under way at the deadline.
  bool Stop(Deadline deadline);

 private:
  using Chore = std::function<Event()>;
  void AddChore(Chore chore);
  void Run();
  event::DataPrepared Prepare(const command::PrepareData& request) const;
  event::CopiesChecked Check(const command::CheckCopies& request) const;

  const DataPreparer preparer_;
  const BlobStore* const copies_;
  const std::function<void(Event)> done_;
  std::mutex mutex_;  // of the next four
  std::condition_variable changed_;
  std::deque<Chore> waiting_;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_PREPARE_THREAD_H_
