// One thread that runs a stage's encodes and decodes in the order in which they were posted.
//
// Thread-safe. Post never blocks. The destructor drops jobs that have not begun, waits for the
// running job, and joins the thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::worker {

class CodecThread {
 public:
  CodecThread();
  ~CodecThread();
  CodecThread(const CodecThread&) = delete;
  CodecThread& operator=(const CodecThread&) = delete;

  void Post(std::function<void()> job);
  // Total time spent in jobs, the current one included.
  absl::Duration BusyTime() const;
  // Number of the running job, counted from 1; nullopt: no job is running.
  std::optional<uint64_t> JobAtHand() const;
  // Number of times that a job has begun or ended.
  uint64_t progress() const;

 private:
  void Loop();
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  absl::Duration busy_;                // time of finished jobs
  std::optional<MonoTime> job_began_;  // of the current job
  uint64_t begun_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::worker
