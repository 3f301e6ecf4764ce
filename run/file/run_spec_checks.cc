#include "run/file/run_spec_checks.h"

#include <fmt/core.h>

#include "run/file/model_fields.h"
#include "run/file/replay_fields.h"

namespace longhaul::config {
namespace {

void CheckPipeline(const RunSpec& spec, Reader& reader) {
  const PipelineSpec& pipeline = spec.pipeline;
  if (reader.Has("model.layers") && spec.model.layers > 0 && pipeline.stages &&
      *pipeline.stages > spec.model.layers) {
    reader.Fail(reader.PlaceOf("pipeline.stages"),
                fmt::format("pipeline.stages: {} stages are more than the model's {} layers; every "
                            "stage needs one",
                            *pipeline.stages, spec.model.layers));
  }
  if (reader.Has("train.microbatches") && spec.train.microbatches > 0 && pipeline.depth &&
      *pipeline.depth > spec.train.microbatches) {
    reader.Fail(reader.PlaceOf("pipeline.depth"),
                fmt::format("pipeline.depth: {} microbatches in flight are more than the {} of a "
                            "step (train.microbatches)",
                            *pipeline.depth, spec.train.microbatches));
  }
  if (pipeline.send_order == SendOrder::kActivationsFirst &&
      (pipeline.schedule == ScheduleKind::kOneFOneB ||
       (pipeline.depth && *pipeline.depth < spec.train.microbatches))) {
    reader.Fail(reader.PlaceOf("pipeline.send_order"),
                fmt::format("pipeline.send_order: activations-first needs all {} microbatches in "
                            "flight; leave send_order out, or take schedule link-aware or gpipe "
                            "without depth",
                            spec.train.microbatches));
  }
  if (pipeline.schedule == ScheduleKind::kGpipe && pipeline.depth &&
      *pipeline.depth < spec.train.microbatches) {
    reader.Fail(reader.PlaceOf("pipeline.depth"),
                fmt::format("pipeline.depth: gpipe keeps all {} microbatches of a step in flight; "
                            "leave depth out or choose another schedule",
                            spec.train.microbatches));
  }
}

}  // namespace

void CheckRunSpec(const RunSpec& spec, Reader& reader) {
  CheckModel(spec, reader);
  CheckPipeline(spec, reader);
  CheckReplay(spec, reader);
  const TrainSpec& train = spec.train;
  if (reader.Has("train.steps") && train.steps > 0 && train.schedule.warmup > train.steps) {
    reader.Fail(reader.PlaceOf("train.schedule.warmup"),
                fmt::format("train.schedule.warmup: {} steps are more than train.steps {}",
                            train.schedule.warmup, train.steps));
  }
  if (spec.validation.every > 0 && spec.validation.share == 0) {
    reader.Fail(reader.PlaceOf("validation.share"),
                fmt::format("validation.share: 0 leaves no text for the validation every {} steps; "
                            "raise it or set validation.every to 0",
                            spec.validation.every));
  }
}

}  // namespace longhaul::config
