// Tokenizing off the loop: one thread, one data set at a time.
#ifndef LONGHAUL_COORDINATOR_RPC_PREPARE_THREAD_H_
#define LONGHAUL_COORDINATOR_RPC_PREPARE_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "coordinator/state/state.h"
#include "coordinator/store/prepare_data.h"

namespace longhaul::coordinator {

class PrepareThread {
 public:
  // `done` runs on this thread, not after Stop.
  PrepareThread(DataPreparer preparer, std::function<void(event::DataPrepared)> done);
  // Waits until the data set under way is done.
  ~PrepareThread();

  void Add(command::PrepareData request);
  // Drops what waits. False: a data set was still under way at the deadline.
  bool Stop(Deadline deadline);

 private:
  void Run();

  const DataPreparer preparer_;
  const std::function<void(event::DataPrepared)> done_;
  std::mutex mutex_;  // of the next four
  std::condition_variable changed_;
  std::deque<command::PrepareData> waiting_;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_PREPARE_THREAD_H_
