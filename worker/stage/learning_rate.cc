#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/stage/stage.h"

namespace longhaul::worker {

double LearningRate(const TrainSpec& train, Step step) {
  const double lr = train.optimizer.lr;
  const uint64_t warmup = train.schedule.warmup;
  if (step.value() <= warmup) {
    return lr * static_cast<double>(step.value()) / static_cast<double>(warmup);
  }
  if (train.schedule.kind == "constant" || train.steps <= warmup) return lr;
  const double progress = std::min(
      1.0, static_cast<double>(step.value() - warmup) / static_cast<double>(train.steps - warmup));
  const double low = train.schedule.final_ratio * lr;
  return low + (lr - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double ClipScale(double clip_norm, double squared_norm) {
  if (clip_norm == 0) return 1;
  const double scale = clip_norm / (std::sqrt(squared_norm) + 1e-6);
  return scale > 1 ? 1 : scale;  // NaN stays NaN.
}

}  // namespace longhaul::worker
