#include "run/file/run_spec_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace longhaul::config {
namespace {

// The names of the schedules that have a trait: "link-aware, 1f1b or gpipe".
template <class HasTrait>
std::string SchedulesThat(const HasTrait& has_trait) {
  std::vector<std::string_view> names;
  for (const ScheduleTraits& one : kSchedules) {
    if (has_trait(one)) names.push_back(one.name);
  }
  const std::string_view last = names.back();
  names.pop_back();
  return names.empty() ? std::string(last) : fmt::format("{} or {}", fmt::join(names, ", "), last);
}

void CheckPipeline(const RunSpec& spec, Reader& reader) {
  const PipelineSpec& pipeline = spec.pipeline;
  const ScheduleTraits& schedule = TraitsOf(pipeline.schedule);
  if (reader.Sound({"model.layers", "pipeline.stages"}) && pipeline.stages &&
      *pipeline.stages > spec.model.layers) {
    reader.Fail(reader.PlaceOf("pipeline.stages"),
                fmt::format("pipeline.stages: {} stages are more than the model's {} layers; every "
                            "stage needs one",
                            *pipeline.stages, spec.model.layers));
  }
  // What follows is about microbatches in flight.
  if (!reader.Sound({"train.microbatches", "pipeline.depth", "pipeline.schedule"})) return;
  if (pipeline.depth && *pipeline.depth > spec.train.microbatches) {
    reader.Fail(reader.PlaceOf("pipeline.depth"),
                fmt::format("pipeline.depth: {} microbatches in flight are more than the {} of a "
                            "step (train.microbatches)",
                            *pipeline.depth, spec.train.microbatches));
  }
  if (reader.Sound({"pipeline.send_order"}) &&
      pipeline.send_order == SendOrder::kActivationsFirst &&
      (!schedule.may_hold_whole_step() ||
       (pipeline.depth && *pipeline.depth < spec.train.microbatches))) {
    reader.Fail(reader.PlaceOf("pipeline.send_order"),
                fmt::format("pipeline.send_order: activations-first needs all {} microbatches in "
                            "flight; leave send_order out, or take schedule {} without depth",
                            spec.train.microbatches, SchedulesThat([](const ScheduleTraits& one) {
                              return one.orders_data;
                            })));
  }
  if (schedule.depth == DepthRule::kWholeStep && pipeline.depth &&
      *pipeline.depth < spec.train.microbatches) {
    reader.Fail(reader.PlaceOf("pipeline.depth"),
                fmt::format("pipeline.depth: {} keeps all {} microbatches of a step in flight; "
                            "leave depth out or choose another schedule",
                            schedule.name, spec.train.microbatches));
  }
}

std::vector<CodecPair> CodecPairsOf(const RunSpec& spec) {
  std::vector<CodecPair> pairs = {spec.links.codecs};
  for (const auto& [worker, exception] : spec.links.by_worker) pairs.push_back(exception.codecs);
  return pairs;
}

// Why microbatches of this run cannot be cut; "": they can.
std::string WhyWhole(const RunSpec& spec, Reader& reader) {
  if (reader.Sound({"model.family"}) && spec.model.has_experts()) {
    return fmt::format("family {} balances experts over all tokens of a microbatch",
                       ToString(spec.model.family));
  }
  for (const CodecPair& pair : CodecPairsOf(spec)) {
    for (const CodecSpec& codec : {pair.forward, pair.backward}) {
      if (codec.remembers_samples()) {
        return fmt::format("the codec {} knows samples whole", ToString(codec));
      }
    }
  }
  return "";
}

void CheckSlices(const RunSpec& spec, Reader& reader) {
  const std::optional<uint32_t>& slices = spec.pipeline.slices;
  if (slices == 1u || !reader.Sound({"pipeline.slices"})) return;
  const auto fail = [&](const std::string& text) {
    reader.Fail(reader.PlaceOf("pipeline.slices"), "pipeline.slices: " + text);
  };
  if (const std::string why = WhyWhole(spec, reader); !why.empty()) {
    fail(fmt::format("expected 1, because {}; leave slices out or change that", why));
  } else if (slices && reader.Sound({"model.context"}) && spec.model.context % *slices != 0) {
    fail(
        fmt::format("expected a number that divides model.context {}, got {}; all slices have "
                    "equally many tokens",
                    spec.model.context, *slices));
  } else if (slices && spec.group.sequence && !spec.group.tensor_auto &&
             reader.Sound({"model.context", "group.sequence", "group.tensor"}) &&
             spec.model.context % spec.group.tensor == 0 &&
             spec.model.context / *slices % spec.group.tensor != 0) {
    fail(
        fmt::format("with group.sequence the {} ranks of group.tensor have equally many of a "
                    "slice's tokens, and do not divide the {} of each of {} slices; choose "
                    "another number, or leave sequence out",
                    spec.group.tensor, spec.model.context / *slices, *slices));
  }
}

// What of this run passes of two steps at a time do not suit; "": nothing.
std::string WhyOneVersion(const RunSpec& spec, Reader& reader) {
  if (reader.Sound({"pipeline.replicas"}) &&
      (spec.replicas.count > 1 || spec.replicas.count_auto)) {
    return "replicas (pipeline.replicas) exchange gradients between two steps";
  }
  if (reader.Sound({"model.family"}) && spec.model.has_experts()) {
    return fmt::format("family {} balances experts between two steps", ToString(spec.model.family));
  }
  if (reader.Sound({"train.lora"}) && spec.model.lora) {
    return "what LoRA does not train (train.lora) would be in memory twice";
  }
  if (reader.Sound({"model.tied", "pipeline.stages"}) && spec.model.TrainsTiedMatrix() &&
      spec.pipeline.stages != 1u) {
    return "two stages train one matrix (model.tied: true); with false or split none does";
  }
  for (const CodecPair& pair : CodecPairsOf(spec)) {
    for (const CodecSpec& codec : {pair.forward, pair.backward}) {
      if (codec.remembers_samples()) {
        return fmt::format("what the codec {} remembers is saved between two steps",
                           ToString(codec));
      }
    }
  }
  return "";
}

void CheckOverlap(const RunSpec& spec, Reader& reader) {
  const ScheduleTraits& schedule = TraitsOf(spec.pipeline.schedule);
  if (!reader.Sound({"pipeline.schedule"}) || !schedule.overlaps_steps) return;
  if (const std::string why = WhyOneVersion(spec, reader); !why.empty()) {
    reader.Fail(
        reader.PlaceOf("pipeline.schedule"),
        fmt::format("pipeline.schedule: expected {}, got {}, which has steps overlap: {}; "
                    "choose another schedule or change that",
                    SchedulesThat([](const ScheduleTraits& one) { return !one.overlaps_steps; }),
                    schedule.name, why));
  }
  if (reader.Sound({"pipeline.send_order"}) &&
      spec.pipeline.send_order == SendOrder::kActivationsFirst) {
    reader.Fail(
        reader.PlaceOf("pipeline.send_order"),
        fmt::format(
            "pipeline.send_order: {} sends in no order, as activations and gradients of two "
            "steps are under way at once; leave send_order out or choose another schedule",
            schedule.name));
  }
}

void CheckMomentum(const OptimizerSpec& optimizer, Reader& reader) {
  if (!reader.Sound({"train.optimizer.kind"}) || optimizer.kind == OptimizerKind::kMuon ||
      !reader.Has("train.optimizer.momentum")) {
    return;
  }
  reader.Fail(reader.PlaceOf("train.optimizer.momentum"),
              "train.optimizer.momentum: only muon has it, and adamw has betas; leave momentum out "
              "or set train.optimizer.kind to muon");
}

void CheckDecay(const TrainSpec& train, Reader& reader) {
  const LrScheduleSpec& schedule = train.schedule;
  if (!reader.Sound({"train.schedule.kind"})) return;
  if (schedule.kind != LrScheduleKind::kWsd) {
    if (!reader.Has("train.schedule.decay")) return;
    reader.Fail(reader.PlaceOf("train.schedule.decay"),
                fmt::format("train.schedule.decay: only the schedule wsd has a decay of its own, "
                            "not {}; leave decay out or set train.schedule.kind to wsd",
                            ToString(schedule.kind)));
    return;
  }
  if (!reader.Sound({"train.steps", "train.schedule.warmup", "train.schedule.decay"})) return;
  const uint64_t decay = schedule.DecaySteps(train.steps);
  if (schedule.warmup > train.steps || schedule.warmup + decay <= train.steps) return;
  reader.Fail(reader.PlaceOf("train.schedule.warmup"),
              fmt::format("train.schedule.warmup: {} steps and a decay of {} (train.schedule.decay "
                          "{}) are more than train.steps {}",
                          schedule.warmup, decay, schedule.decay, train.steps));
}

void CheckValidation(const RunSpec& spec, Reader& reader) {
  const ValidationSpec& validation = spec.validation;
  if (!reader.Sound({"validation.every"})) return;
  if (reader.Sound({"validation.share"}) && validation.every > 0 && validation.share == 0) {
    reader.Fail(reader.PlaceOf("validation.share"),
                fmt::format("validation.share: 0 leaves no text for the validation every {} steps; "
                            "raise it or set validation.every to 0",
                            validation.every));
  }
  if (reader.Sound({"validation.at_start"}) && validation.at_start && validation.every == 0) {
    reader.Fail(reader.PlaceOf("validation.at_start"),
                "validation.at_start: validation.every 0 turns all validation off; raise it or "
                "leave at_start out");
  }
  if (!reader.Sound({"train.steps"}) || spec.train.steps > 0) return;
  if (reader.Sound({"model.from"}) && spec.weights.from.empty()) {
    reader.Fail(reader.PlaceOf("train.steps"),
                "train.steps: a run of 0 steps only validates, and without model.from its weights "
                "are random; expected at least 1 step, or a folder with weights as model.from");
  }
  if (validation.every == 0) {
    reader.Fail(reader.PlaceOf("train.steps"),
                "train.steps: a run of 0 steps only validates, and validation.every 0 turns that "
                "off; raise one of them");
  }
}

// Gradients have no tokens that would tell of them.
void CheckBackward(const CodecPair& codecs, const char* key, Reader& reader) {
  if (!reader.Sound({key}) || !codecs.backward.predicts_by_tokens()) return;
  reader.Fail(reader.PlaceOf(key),
              fmt::format("{}: '{}' knows activations by their tokens, and cannot send gradients; "
                          "choose another codec backward",
                          key, ToString(codecs.backward)));
}

// A problem for each line of what `status` says.
void FailLines(const Status& status, const Place& place, Reader& reader) {
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(Message(status)), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) reader.Fail(place, line);
}

void CheckHooks(const RunSpec& spec, Reader& reader) {
  if (spec.hooks.on_checkpoint.empty()) {
    for (const char* key : {"hooks.timeout", "hooks.merged"}) {
      if (!reader.Has(key) || reader.Has("hooks.on_checkpoint")) continue;
      reader.Fail(reader.PlaceOf(key),
                  fmt::format("{}: expected hooks.on_checkpoint beside it, with a program", key));
    }
    return;
  }
  if (spec.replay) {
    reader.Fail(reader.PlaceOf("hooks.on_checkpoint"),
                "hooks.on_checkpoint: a replay has no parameters to export; leave the hook out");
  }
  if (spec.group.shared_channels < 1) {
    reader.Fail(reader.PlaceOf("hooks.on_checkpoint"),
                fmt::format("hooks.on_checkpoint: expected group.p 1, got {}: ranks with channels "
                            "of their own are no model of transformers, which hooks are given",
                            spec.group.shared_channels));
  }
}

}  // namespace

bool ValidatesAtStartByDefault(const RunSpec& spec) {
  return spec.validation.every > 0 && !spec.weights.from.empty();
}

void CheckRunSpec(const RunSpec& spec, Reader& reader) {
  CheckModel(spec, reader);
  CheckLora(spec, reader);
  CheckDpo(spec, reader);
  CheckPipeline(spec, reader);
  CheckSlices(spec, reader);
  CheckOverlap(spec, reader);
  CheckGroup(spec, reader);
  CheckReplicas(spec, reader);
  CheckReplay(spec, reader);
  CheckHooks(spec, reader);
  CheckSamples(spec, reader);
  CheckVerify(spec, reader);
  CheckAudit(spec, reader);
  CheckBackward(spec.links.codecs, "links.backward", reader);
  for (const auto& [worker, exception] : spec.links.by_worker) {
    if (exception.codecs.backward == spec.links.codecs.backward) continue;
    CheckBackward(exception.codecs, "links.workers", reader);
  }
  if (reader.Has("links.error") && !spec.links.HasAutoCodecs()) {
    reader.Fail(reader.PlaceOf("links.error"),
                "links.error: no codec is left to the plan; set links.forward or links.backward to "
                "auto, or leave error out");
  }
  if (!spec.data.sets.empty() && !spec.data.text.empty()) {
    reader.Fail(reader.PlaceOf("data.sets"),
                "data.sets: data.text says already what to train on; leave one of them out");
  }
  if (spec.data.mask_documents && spec.data.sets.empty() && reader.Sound({"data.text"})) {
    reader.Fail(reader.PlaceOf("data.mask"),
                "data.mask: nobody knows where the documents of data.text end; make a data set of "
                "it (`longhaul data prepare`) and name that by data.sets");
  }
  const TrainSpec& train = spec.train;
  if (reader.Sound({"train.steps", "train.schedule.warmup"}) && train.steps > 0 &&
      train.schedule.warmup > train.steps) {
    reader.Fail(reader.PlaceOf("train.schedule.warmup"),
                fmt::format("train.schedule.warmup: {} steps are more than train.steps {}",
                            train.schedule.warmup, train.steps));
  }
  CheckMomentum(train.optimizer, reader);
  CheckDecay(train, reader);
  CheckValidation(spec, reader);
}

void CheckTexts(const RunSpec& spec, const FindTexts& find_texts, Reader& reader) {
  if (!spec.data.sets.empty()) {
    if (!reader.Sound({"data.sets", "model.context", "validation.share"})) return;
    FailLines(find_texts(spec).status(), reader.PlaceOf("data.sets"), reader);
    return;
  }
  if (!reader.Sound({"data.text"})) return;
  const Place place = reader.PlaceOf("data.text");
  const StatusOr<uint64_t> bytes = find_texts(spec);
  if (!bytes.ok()) {
    FailLines(bytes.status(), place, reader);
  } else if (reader.Sound({"model.context", "validation.share", "validation.every"})) {
    // Every tokenizer makes at most one token of a byte.
    FailLines(CheckDataSize(spec, *bytes), place, reader);
  }
}

}  // namespace longhaul::config
