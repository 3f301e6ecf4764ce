#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

// Between `begin` (0) and the last step (1).
double Progress(uint64_t step, uint64_t begin, uint64_t last) {
  return std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(last - begin));
}

}  // namespace

double LearningRate(const TrainSpec& train, Step step) {
  const LrScheduleSpec& schedule = train.schedule;
  const double lr = train.optimizer.lr;
  const uint64_t warmup = schedule.warmup;
  if (step.value() <= warmup) {
    return lr * static_cast<double>(step.value()) / static_cast<double>(warmup);
  }
  if (train.steps <= warmup) return lr;
  const double low = schedule.final_ratio * lr;
  switch (schedule.kind) {
    case LrScheduleKind::kConstant:
      break;
    case LrScheduleKind::kCosine: {
      const double progress = Progress(step.value(), warmup, train.steps);
      return low + (lr - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    }
    case LrScheduleKind::kLinear:
      return lr + (low - lr) * Progress(step.value(), warmup, train.steps);
    case LrScheduleKind::kWsd: {
      const uint64_t decay = std::min(schedule.DecaySteps(train.steps), train.steps - warmup);
      const uint64_t begin = train.steps - decay;
      if (step.value() <= begin || decay == 0) break;
      return lr + (low - lr) * Progress(step.value(), begin, train.steps);
    }
  }
  return lr;
}

double ClipScale(double clip_norm, double squared_norm) {
  if (clip_norm == 0) return 1;
  const double scale = clip_norm / (std::sqrt(squared_norm) + 1e-6);
  return scale > 1 ? 1 : scale;  // NaN stays NaN.
}

}  // namespace longhaul::worker
