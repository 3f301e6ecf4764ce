// Watches from its own thread whether a stage's compute thread or codec thread is stuck in one
// piece of work: a kernel, a driver or a system call. A thread that waits for a neighbour is not
// stuck.
//
// A stuck thread cannot be ended, so the caller's `on_hang` has to end the process.
#pragma once

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

// Measures how long a thread has been in one piece of work. Between two calls of Look at most twice
// `look_every` counts: after a longer gap the process was stopped or its machine was asleep, and
// nothing hung.
class TimeAtOnePiece {
 public:
  explicit TimeAtOnePiece(absl::Duration look_every) : look_every_(look_every) {}
  // Returns the time so far in the current piece; 0 if the piece is new. Call it every
  // `look_every`. `piece`: the current piece's number; nullopt: no piece.
  absl::Duration Look(std::optional<uint64_t> piece, MonoTime now);

 private:
  const absl::Duration look_every_;
  std::optional<uint64_t> piece_;
  absl::Duration seen_;
  MonoTime last_;
};

// Returns the limit for a piece: `timeout` or the time of 20 median steps, whichever is longer.
// Before the first step has ended (nullopt), the limit is 10 times `timeout`, because the step may
// record CUDA graphs. For a wait for the disk (kDisk) the limit is 10 times the limit of others.
absl::Duration LimitOf(const WorkAtHand::Piece& piece, std::optional<absl::Duration> median_step,
                       absl::Duration timeout);

class Watchdog {
 public:
  // `work` and `codec_thread` must outlive this object. `on_hang` is called at most once, on the
  // watchdog's thread, with a part of a sentence: "has made no progress for 61 s in step 118: in
  // the optimizer". It may end the process.
  Watchdog(const WorkAtHand* work, const CodecThread* codec_thread, absl::Duration timeout,
           std::function<void(const std::string&)> on_hang);
  // Ends the thread. Waits for a running `on_hang`.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Loop();
  // Returns the fault; nullopt: none.
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
