// Tells observers (watchdog.h) what a stage's compute thread is doing. A piece of work is something
// that the thread cannot leave: a pass of a microbatch, the optimizer, a wait for the disk. A wait
// for a neighbour is no piece of work.
//
// Threads: Scope, BeginStep, EndStep and BeginWait on the compute thread; other methods on any
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"

namespace longhaul::worker {

class WorkAtHand {
 public:
  // kTied: the sum or check of a tied matrix. kReplicas: the exchange with other replicas. kNorm:
  // the squared gradient norm. kSnapshot: the copy of the state for a checkpoint. kDisk: a wait for
  // the disk that takes checkpoints.
  enum class Kind : uint8_t {
    kForward,
    kBackward,
    kValidation,
    kSamples,
    kTied,
    kReplicas,
    kNorm,
    kOptimizer,
    kSnapshot,
    kDisk
  };
  // kInput: for an activation, or for the final norm and decisions from the previous stage.
  // kGradient: for a gradient, or for the norm of the next stage. kTied: for the other end of the
  // tied matrix. kReplicas: for other replicas. kVerdict: for the coordinator, about what the stage
  // found.
  enum class Wait : uint8_t { kInput, kGradient, kTied, kReplicas, kVerdict };
  struct Piece {
    uint64_t number = 0;  // unique within an attempt of the stage
    Kind kind = Kind::kForward;
    Microbatch microbatch{0};  // for forward, backward, validation and samples; else 0
  };

  // A piece of work lasts as long as this object, which `work` must outlive. Pieces must not
  // overlap.
  class Scope {
   public:
    Scope(WorkAtHand* work, Kind kind, Microbatch microbatch = {}) : work_(work) {
      work_->Begin(kind, microbatch);
    }
    ~Scope() { work_->End(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WorkAtHand* const work_;
  };

  // Record what the thread does. `took`: how long the step lasted. A wait lasts until the next
  // piece of work begins.
  void BeginStep(Step step);
  void EndStep(absl::Duration took);
  void BeginWait(Wait wait);

  // Returns the current piece of work. nullopt: the thread waits for a neighbour, is between two
  // pieces, or has not begun.
  std::optional<Piece> piece() const;
  // The step that was begun last; 0: none.
  Step step() const;
  // Number of times that a piece of work has begun or ended.
  uint64_t progress() const;
  // Median time of the last 32 steps; nullopt before the first step has ended.
  std::optional<absl::Duration> MedianStep() const;
  // Text for people, such as "in the backward pass of microbatch 3" or "waiting for an activation".
  std::string Doing() const;

  static std::string ToString(const Piece& piece);

 private:
  void Begin(Kind kind, Microbatch microbatch);
  void End();

  mutable std::mutex mutex_;
  std::optional<Piece> piece_;
  std::optional<Wait> wait_;
  Step step_{0};
  uint64_t begun_ = 0;
  uint64_t done_ = 0;
  std::deque<absl::Duration> steps_;
};

}  // namespace longhaul::worker
