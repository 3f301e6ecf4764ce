#include "worker/pipeline/work_at_hand.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace longhaul::worker {
namespace {

constexpr size_t kSteps = 32;

}  // namespace

void WorkAtHand::BeginStep(Step step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void WorkAtHand::EndStep(absl::Duration took) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(took);
  if (steps_.size() > kSteps) steps_.pop_front();
}

void WorkAtHand::BeginWait(Wait wait) {
  const std::lock_guard lock(mutex_);
  wait_ = wait;
}

void WorkAtHand::Begin(Kind kind, Microbatch microbatch) {
  const std::lock_guard lock(mutex_);
  piece_ = Piece{++begun_, kind, microbatch};
}

void WorkAtHand::End() {
  const std::lock_guard lock(mutex_);
  piece_.reset();
  wait_.reset();
  ++done_;
}

std::optional<WorkAtHand::Piece> WorkAtHand::piece() const {
  const std::lock_guard lock(mutex_);
  return piece_;
}

Step WorkAtHand::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

uint64_t WorkAtHand::progress() const {
  const std::lock_guard lock(mutex_);
  return begun_ + done_;
}

std::optional<absl::Duration> WorkAtHand::MedianStep() const {
  const std::lock_guard lock(mutex_);
  if (steps_.empty()) return std::nullopt;
  std::vector<absl::Duration> sorted(steps_.begin(), steps_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::string WorkAtHand::Doing() const {
  const std::lock_guard lock(mutex_);
  if (piece_) return ToString(*piece_);
  if (!wait_) return "between two pieces of work";
  switch (*wait_) {
    case Wait::kInput:
      return "waiting for an activation, or the word of the stage above";
    case Wait::kGradient:
      return "waiting for a gradient, or the norm of the stage below";
    case Wait::kTied:
      return "waiting for what the other end of the tied matrix sends";
    case Wait::kReplicas:
      return "waiting for the other replicas of its stage";
    case Wait::kVerdict:
      return "waiting for the coordinator, because it has found something wrong";
  }
  return "waiting";
}

std::string WorkAtHand::ToString(const Piece& piece) {
  switch (piece.kind) {
    case Kind::kForward:
      return fmt::format("in the forward pass of microbatch {}", piece.microbatch.value());
    case Kind::kBackward:
      return fmt::format("in the backward pass of microbatch {}", piece.microbatch.value());
    case Kind::kValidation:
      return fmt::format("in the validation of microbatch {}", piece.microbatch.value());
    case Kind::kSamples:
      return fmt::format("in the samples of microbatch {}", piece.microbatch.value());
    case Kind::kTied:
      return "in the sum or the check of the tied matrix";
    case Kind::kReplicas:
      return "in the exchange with the other replicas of its stage";
    case Kind::kNorm:
      return "in the norm of its gradients";
    case Kind::kOptimizer:
      return "in the optimizer";
    case Kind::kSnapshot:
      return "in the snapshot for a checkpoint";
    case Kind::kDisk:
      return "waiting for its disk to take a checkpoint";
  }
  return "in some work";
}

}  // namespace longhaul::worker
