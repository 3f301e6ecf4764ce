// RunSpec to text.
#include <fmt/core.h>
#include <fmt/format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/yaml/yaml_text.h"
#include "run/file/group_fields.h"
#include "run/file/lora_fields.h"
#include "run/file/model_fields.h"
#include "run/file/replay_fields.h"
#include "run/file/replica_fields.h"
#include "run/file/run_spec.h"
#include "run/file/run_spec_checks.h"
#include "run/file/topology_fields.h"

namespace longhaul {
namespace {

using config::Exact;
using config::ExactBytes;
using config::Quote;

std::string OrAuto(const std::optional<uint32_t>& value) {
  return value ? fmt::format("{}", *value) : "auto";
}

// Keys that neighbours of an older version do not know, where they say something.
std::string NewKeysOfValidation(const RunSpec& spec) {
  const ValidationSpec& validation = spec.validation;
  std::string out;
  if (validation.clean != ValidationSpec().clean) {
    out += fmt::format("  clean: {}\n", ToString(validation.clean));
  }
  if (validation.at_start != config::ValidatesAtStartByDefault(spec)) {
    out += fmt::format("  at_start: {}\n", validation.at_start);
  }
  return out;
}

std::string NewKeysOf(const OptimizerSpec& optimizer) {
  const OptimizerSpec usual;
  std::string out;
  if (optimizer.momentum != usual.momentum) {
    out += fmt::format("    momentum: {}\n", optimizer.momentum);
  }
  if (optimizer.moments != usual.moments) {
    out += fmt::format("    moments: {}\n", ToString(optimizer.moments));
  }
  return out;
}

std::string NewKeysOf(const LrScheduleSpec& schedule) {
  if (schedule.decay == LrScheduleSpec().decay) return "";
  return fmt::format("    decay: {}\n", schedule.decay);
}

std::string NewKeysOf(const TrainSpec& train) {
  std::string out;
  if (train.deterministic) out += "  deterministic: true\n";
  if (train.on_nonfinite != OnNonfinite::kStop) {
    out += fmt::format("  on_nonfinite: {}\n", ToString(train.on_nonfinite));
  }
  return out;
}

std::string NewKeysOf(const PipelineSpec& pipeline) {
  if (pipeline.slices == PipelineSpec().slices) return "";
  return fmt::format("  slices: {}\n", OrAuto(pipeline.slices));
}

// auto, which neighbours of an older version do not know, is what is left out.
std::string DtypeYaml(ComputeDtype dtype) {
  return dtype == ComputeDtype::kAuto ? "" : fmt::format("  dtype: {}\n", ToString(dtype));
}

// Neighbours of an older version know true and false.
std::string_view RecomputeYaml(Recompute what) {
  switch (what) {
    case Recompute::kNone:
      return "false";
    case Recompute::kStage:
      return "true";
    case Recompute::kBlocks:
      break;
  }
  return ToString(what);
}

std::string TrainYaml(const TrainSpec& train) {
  const OptimizerSpec& optimizer = train.optimizer;
  const LrScheduleSpec& schedule = train.schedule;
  return fmt::format(
      "train:\n"
      "  steps: {}\n"
      "  microbatches: {}\n"
      "  microbatch_size: {}\n"
      "{}"
      "  seed: {}\n"
      "{}"
      "  optimizer:\n"
      "    kind: {}\n"
      "    lr: {}\n"
      "    betas: [{}, {}]\n"
      "    epsilon: {}\n"
      "    weight_decay: {}\n"
      "    clip_norm: {}\n"
      "{}"
      "  schedule:\n"
      "    kind: {}\n"
      "    warmup: {}\n"
      "    final_ratio: {}\n"
      "{}",
      train.steps, train.microbatches, train.microbatch_size, DtypeYaml(train.dtype), train.seed,
      NewKeysOf(train), ToString(optimizer.kind), optimizer.lr, optimizer.beta1, optimizer.beta2,
      optimizer.epsilon, optimizer.weight_decay, optimizer.clip_norm, NewKeysOf(optimizer),
      ToString(schedule.kind), schedule.warmup, schedule.final_ratio, NewKeysOf(schedule));
}

std::string DataYaml(const DataSpec& data) {
  std::string out = "data:\n";
  if (data.sets.empty()) {
    out += "  text:\n";
    for (const std::string& glob : data.text) out += fmt::format("    - {}\n", Quote(glob));
    return out + fmt::format("  tokenizer: {}\n  seed: {}\n", data.tokenizer, data.seed);
  }
  std::vector<std::string> sets;
  for (const DataSource& source : data.sets) {
    sets.push_back(fmt::format("{{ from: {}, weight: {} }}", Quote(source.from), source.weight));
  }
  out += fmt::format("  sets: [{}]\n  seed: {}\n  upload: {}\n  memory: {}\n",
                     fmt::join(sets, ", "), data.seed, data.upload, ExactBytes(data.memory_bytes));
  if (data.mask_documents) out += "  mask: document\n";
  if (data.list_sha256.empty()) return out;
  return out + fmt::format("  list: {}\n  vocabulary: {}\n  masks: {}\n", data.list_sha256,
                           data.vocabulary, data.masks);
}

// The keys of a section as an override.
std::string Override(std::string_view section, const std::string& yaml) {
  const std::vector<std::string> lines = absl::StrSplit(yaml, '\n', absl::SkipEmpty());
  std::string keys;
  for (size_t i = 1; i < lines.size(); ++i) {
    keys +=
        fmt::format("{}{}", i > 1 ? ", " : "", std::string(absl::StripAsciiWhitespace(lines[i])));
  }
  return fmt::format("{}={{ {} }}", section, keys);
}

std::string LinksYaml(const LinksSpec& links) {
  std::string out = fmt::format(
      "links:\n"
      "  forward: {}\n"
      "  backward: {}\n"
      "  cache_limit: {}\n"
      "  measure: {}\n",
      Quote(links.codecs.forward), Quote(links.codecs.backward),
      ExactBytes(links.cache_limit_bytes), links.measure);
  // Neighbours of an older version do not know it.
  if (links.encrypt != EncryptKind::kAuto) {
    out += fmt::format("  encrypt: {}\n", ToString(links.encrypt));
  }
  if (links.error != LinksSpec().error) out += fmt::format("  error: {}\n", links.error);
  if (!links.chosen.empty()) {
    out += "  chosen:\n";
    for (const std::vector<CodecPair>& pairs : links.chosen) {
      std::string list;
      for (const CodecPair& pair : pairs) {
        list += fmt::format("{}{{ forward: {}, backward: {} }}", list.empty() ? "" : ", ",
                            Quote(pair.forward), Quote(pair.backward));
      }
      out += fmt::format("    - [{}]\n", list);
    }
  }
  if (links.by_worker.empty()) return out;
  out += "  workers:\n";
  for (const auto& [worker, exception] : links.by_worker) {
    out += fmt::format("    {}: {{ forward: {}, backward: {}", Quote(worker),
                       Quote(exception.codecs.forward), Quote(exception.codecs.backward));
    if (exception.transport) out += fmt::format(", transport: {}", ToString(*exception.transport));
    out += " }\n";
  }
  return out;
}

std::string RecoveryYaml(const RecoverySpec& recovery) {
  return fmt::format("recovery:\n  attempts: {}\n  every: {}\n  spares: {}\n{}", recovery.attempts,
                     OrAuto(recovery.every), recovery.spares,
                     recovery.replicas == LostReplica::kExact
                         ? ""
                         : fmt::format("  replicas: {}\n", ToString(recovery.replicas)));
}

}  // namespace

std::string ModelOverride(const RunSpec& spec) {
  return Override("model", config::ModelYaml(spec));
}

std::string DataOverride(const RunSpec& spec) {
  return Override("data", DataYaml(spec.data));
}

std::string ToYaml(const RunSpec& spec) {
  std::string out = fmt::format(
      "name: {}\n"
      "{}",
      Quote(spec.name), config::ModelYaml(spec));
  out += DataYaml(spec.data);
  out += fmt::format(
      "validation:\n"
      "  share: {}\n"
      "  every: {}\n"
      "  samples: {}\n"
      "{}",
      spec.validation.share, spec.validation.every, spec.validation.samples,
      NewKeysOfValidation(spec));
  out += TrainYaml(spec.train) + config::LoraYaml(spec.model.lora);
  out += fmt::format(
      "pipeline:\n"
      "  stages: {}\n"
      "{}"
      "  schedule: {}\n"
      "  send_order: {}\n"
      "  recompute: {}\n"
      "  threads_per_stage: {}\n"
      "  depth: {}\n"
      "{}"
      "{}"
      "{}"
      "transport: {}\n",
      OrAuto(spec.pipeline.stages),
      spec.pipeline.placement == PlacementKind::kAuto
          ? ""
          : fmt::format("  placement: {}\n", ToString(spec.pipeline.placement)),
      ToString(spec.pipeline.schedule), ToString(spec.pipeline.send_order),
      RecomputeYaml(spec.pipeline.recompute), spec.pipeline.threads_per_stage,
      OrAuto(spec.pipeline.depth), NewKeysOf(spec.pipeline), config::ReplicasYaml(spec.replicas),
      config::GroupYaml(spec.group), ToString(spec.transport));
  out += LinksYaml(spec.links);
  out += fmt::format(
      "checkpoint:\n"
      "  every: {}\n"
      "  keep: {}\n"
      "  keep_copy: {}\n"
      "{}"
      "{}"
      "peer_timeout: {}\n"
      "session_timeout: {}\n"
      "reattach_timeout: {}\n",
      spec.checkpoint.every, spec.checkpoint.keep, spec.checkpoint.keep_copy,
      spec.checkpoint.at_end ? "" : "  at_end: false\n", RecoveryYaml(spec.recovery),
      Exact(spec.peer_timeout), Exact(spec.session_timeout), Exact(spec.reattach_timeout));
  return out + config::ReplayYaml(spec.replay) + config::TopologyYaml(spec.topology);
}

}  // namespace longhaul
