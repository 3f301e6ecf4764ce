// One thread that runs a stage's encodes and decodes in the order they were posted.
//
// Post is thread-safe and never blocks. The destructor drops what has not begun and joins.
#ifndef LONGHAUL_WORKER_PIPELINE_CODEC_THREAD_H_
#define LONGHAUL_WORKER_PIPELINE_CODEC_THREAD_H_

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
  // Time spent in jobs since the beginning, with what the job at hand has taken so far.
  absl::Duration BusyTime() const;
  // The job that it is in, numbered from the first; nullopt: it is idle.
  std::optional<uint64_t> JobAtHand() const;
  // Jobs that were begun or done so far.
  uint64_t progress() const;

 private:
  void Loop();
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  absl::Duration busy_;                // of jobs that are done
  std::optional<MonoTime> job_began_;  // of the one at hand
  uint64_t begun_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_CODEC_THREAD_H_
