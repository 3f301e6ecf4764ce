#include "deploy/sweep/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "deploy/sweep/prediction.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::cli {
namespace {

// Quantile of a sorted list, interpolated between two values where needed.
double Quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

std::optional<uint64_t> Difference(const std::optional<uint64_t>& before,
                                   const std::optional<uint64_t>& after) {
  if (!before || !after || *after < *before) return std::nullopt;
  return *after - *before;
}

struct OneWay {
  std::optional<uint64_t> bytes, acknowledgements;
  uint64_t dropped_packets = 0;
};

OneWay Between(const std::optional<LinkCounters>& before,
               const std::optional<LinkCounters>& after) {
  if (!before || !after) return {};
  return {
      .bytes = Difference(before->bytes, after->bytes),
      .acknowledgements = Difference(before->acknowledgement_bytes, after->acknowledgement_bytes),
      .dropped_packets = Difference(before->dropped_packets, after->dropped_packets).value_or(0)};
}

// A replay learns nothing: what it reports as loss is not one.
std::optional<double> Loss(bool there, double loss) {
  return there && std::isfinite(loss) ? std::optional(loss) : std::nullopt;
}

// Median of what `value` says of the steps after warm-up.
double MedianOf(const std::vector<v1::StepRecord>& steps, uint64_t warm_up,
                uint64_t (v1::StepRecord::*value)() const) {
  std::vector<double> values;
  for (const v1::StepRecord& step : steps) {
    if (step.step() > warm_up) values.push_back(static_cast<double>((step.*value)()));
  }
  std::ranges::sort(values);
  return values.empty() ? 0 : Quantile(values, 0.5);
}

Status SetStepTime(const std::vector<v1::StepRecord>& steps, PointResult* result) {
  std::vector<double> seconds;
  for (const v1::StepRecord& step : steps) {
    if (step.step() > result->warm_up) seconds.push_back(step.seconds());
  }
  if (seconds.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("the run is done and reported {} steps, none after its {} of warm-up",
                    steps.size(), result->warm_up));
  }
  std::ranges::sort(seconds);
  result->step_seconds = Quantile(seconds, 0.5);
  result->step_seconds_low = Quantile(seconds, 0.25);
  result->step_seconds_high = Quantile(seconds, 0.75);
  return absl::OkStatus();
}

// The one place where a prediction gets into the results.
Status SetPrediction(const SweepPoint& point, const Plan& plan, PointResult* result) {
  LH_ASSIGN_OR_RETURN(const PointPrediction prediction,
                      PredictPoint(plan, point.spec, point.rate_bits_per_second, point.delay));
  result->simulated_seconds = prediction.simulated_seconds;
  result->bound_seconds = prediction.bound_seconds;
  result->floor_seconds = prediction.floor_seconds;
  result->bottleneck = prediction.bottleneck;
  result->plan_simulated_seconds = plan.prediction.step_seconds;
  result->plan_bound_seconds = plan.prediction.lower_bound_seconds;
  result->explanation = plan.explanation;
  return absl::OkStatus();
}

}  // namespace

PointResult Unmeasured(const SweepPoint& point, const SweepSpec& sweep) {
  PointResult result;
  result.id = point.id;
  result.rate_bits_per_second = point.rate_bits_per_second;
  result.delay_seconds = absl::ToDoubleSeconds(point.delay);
  if (point.delay > absl::ZeroDuration()) {
    result.jitter_seconds = absl::ToDoubleSeconds(sweep.jitter);
  }
  result.loss_share = sweep.loss;
  result.links = point.links.name;
  result.forward = point.links.codecs.forward;
  result.backward = point.links.codecs.backward;
  result.schedule = ToString(point.schedule);
  result.variant = point.variant;
  result.repeat = point.repeat;
  if (!point.impossible.empty()) {
    result.state = PointState::kImpossible;
    result.reason = point.impossible;
  }
  return result;
}

PointResult FailedPoint(const SweepPoint& point, const SweepSpec& sweep, std::string reason,
                        std::string run_id) {
  PointResult result = Unmeasured(point, sweep);
  result.state = PointState::kRunFailed;
  result.reason = std::move(reason);
  result.run_id = std::move(run_id);
  return result;
}

void StageShares::Add(const v1::RunStatus& run) {
  for (const v1::StageStatus& stage : run.stages()) {
    Sums& sums = sums_[{.replica = stage.replica(), .stage = stage.stage()}];
    if (stage.step() <= warm_up_ || stage.step() <= sums.last_step) continue;
    sums.last_step = stage.step();
    sums.count += 1;
    sums.shares.compute_share += stage.compute_share();
    sums.shares.optimizer_share += stage.optimizer_share();
    sums.shares.wait_input_share += stage.wait_input_share();
    sums.shares.wait_gradient_share += stage.wait_gradient_share();
    sums.shares.codec_wait_share += stage.codec_wait_share();
    sums.shares.codec_share += stage.codec_share();
  }
}

std::vector<StageResult> StageShares::Means(const Assignment& assignment) const {
  std::vector<StageResult> stages;
  for (const Cell& cell : assignment.cells) {
    StageResult stage;
    if (const auto it = sums_.find(cell.id); it != sums_.end() && it->second.count > 0) {
      stage = it->second.shares;
      for (double* share :
           {&stage.compute_share, &stage.optimizer_share, &stage.wait_input_share,
            &stage.wait_gradient_share, &stage.codec_wait_share, &stage.codec_share}) {
        *share /= it->second.count;
      }
    }
    stage.id = cell.id;
    stage.worker = cell.worker_name;
    stage.first_layer = cell.layers.first;
    stage.layers = cell.layers.count;
    stage.depth = cell.setting.depth;
    stages.push_back(std::move(stage));
  }
  return stages;
}

std::vector<LinkBytes> BytesBetween(const ClusterView& before, const ClusterView& after) {
  std::vector<LinkBytes> links;
  for (size_t i = 0; i < after.workers.size() && i < before.workers.size(); ++i) {
    const OneWay up = Between(before.workers[i].uplink, after.workers[i].uplink);
    const OneWay down = Between(before.workers[i].downlink, after.workers[i].downlink);
    links.push_back({.worker = after.state.workers[i].name,
                     .up = up.bytes,
                     .down = down.bytes,
                     .up_acknowledgements = up.acknowledgements,
                     .down_acknowledgements = down.acknowledgements,
                     .dropped_packets = up.dropped_packets + down.dropped_packets});
  }
  return links;
}

StatusOr<PointResult> MeasuredPoint(const SweepPoint& point, const SweepSpec& sweep,
                                    const v1::RunStatus& run,
                                    const std::vector<v1::StepRecord>& steps,
                                    const StageShares& shares, std::vector<LinkBytes> link_bytes) {
  PointResult result = Unmeasured(point, sweep);
  result.state = PointState::kMeasured;
  result.run_id = run.run_id();
  result.replay_source = run.replay_source();
  result.replayed = !run.replay_source().empty();
  result.started_unix_ms = run.started_unix_ms();
  result.ended_unix_ms = run.ended_unix_ms();
  result.steps = static_cast<uint64_t>(
      std::ranges::count_if(steps, [](const v1::StepRecord& step) { return step.step() > 0; }));
  result.warm_up = sweep.warm_up;
  result.tokens_per_step = point.spec.TokensPerStep();
  LH_RETURN_IF_ERROR(SetStepTime(steps, &result));
  const Plan plan = FromProto(run.plan());
  LH_RETURN_IF_ERROR(SetPrediction(point, plan, &result));
  result.link_bytes_per_step = MedianOf(steps, sweep.warm_up, &v1::StepRecord::link_bytes);
  result.payload_bytes_per_step = MedianOf(steps, sweep.warm_up, &v1::StepRecord::payload_bytes);
  result.stages = shares.Means(plan.assignment);
  result.link_bytes = std::move(link_bytes);
  for (const v1::StepRecord& step : steps) {
    result.curve.push_back(
        {.step = step.step(),
         .seconds = step.seconds(),
         .loss = Loss(!result.replayed && step.has_loss(), step.loss()),
         .validation_loss = Loss(!result.replayed && step.has_validation(), step.validation_loss()),
         .clean_validation_loss = Loss(!result.replayed && step.has_clean_validation_loss(),
                                       step.clean_validation_loss())});
  }
  return result;
}

}  // namespace longhaul::cli
