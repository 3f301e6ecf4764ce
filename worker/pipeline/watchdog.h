// Looks from a thread of its own whether a stage's compute thread, or the codec thread, is stuck in
// one piece of work: in a kernel, a driver or a system call. A stage that waits for a neighbour is
// not stuck.
//
// The stuck thread cannot be ended, so whoever is told has to end the process.
#ifndef LONGHAUL_WORKER_PIPELINE_WATCHDOG_H_
#define LONGHAUL_WORKER_PIPELINE_WATCHDOG_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/work_at_hand.h"

namespace longhaul::worker {

// How long a thread has been seen at one piece of work. Time in which nobody looked counts little:
// then the process was stopped, or its machine asleep, and nothing hung.
class TimeAtOnePiece {
 public:
  explicit TimeAtOnePiece(absl::Duration look_every) : look_every_(look_every) {}
  // The piece that is at hand now, by its number; nullopt: none.
  absl::Duration Look(std::optional<uint64_t> piece, MonoTime now);

 private:
  const absl::Duration look_every_;
  std::optional<uint64_t> piece_;
  absl::Duration seen_;
  MonoTime last_;
};

// How long a piece may take: `timeout`, and at least 20 median steps. Ten times that before the
// first step has ended, which also records passes and has nothing to compare with, and for the
// disk, which is shared and takes as long as it takes.
absl::Duration LimitOf(const WorkAtHand::Piece& piece, std::optional<absl::Duration> median_step,
                       absl::Duration timeout);

class Watchdog {
 public:
  // `work` and `codec_thread` outlive it. `on_hang` is called at most once, on the watchdog's
  // thread, with a part of a sentence: "has made no progress for 61 s in step 118: in the
  // optimizer". It may end the process.
  Watchdog(const WorkAtHand* work, const CodecThread* codec_thread, absl::Duration timeout,
           std::function<void(const std::string&)> on_hang);
  // Ends the thread, unless it is in `on_hang`: then it waits for its end.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Loop();
  // What is wrong; nullopt: nothing.
  std::optional<std::string> Look(MonoTime now);

  const WorkAtHand* const work_;
  const CodecThread* const codec_thread_;
  const absl::Duration timeout_;
  const absl::Duration look_every_;
  const std::function<void(const std::string&)> on_hang_;
  TimeAtOnePiece compute_, codec_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_WATCHDOG_H_
