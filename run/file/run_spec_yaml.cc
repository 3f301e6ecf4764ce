// RunSpec to text.
#include <fmt/core.h>
#include <fmt/format.h>

#include "base/yaml/yaml_text.h"
#include "run/file/model_fields.h"
#include "run/file/replay_fields.h"
#include "run/file/run_spec.h"
#include "run/file/topology_fields.h"

namespace longhaul {
namespace {

using config::Exact;
using config::ExactBytes;
using config::Quote;

std::string OrAuto(const std::optional<uint32_t>& value) {
  return value ? fmt::format("{}", *value) : "auto";
}

std::string TrainYaml(const TrainSpec& train) {
  const OptimizerSpec& optimizer = train.optimizer;
  return fmt::format(
      "train:\n"
      "  steps: {}\n"
      "  microbatches: {}\n"
      "  microbatch_size: {}\n"
      "  dtype: {}\n"
      "  seed: {}\n"
      "{}"
      "  optimizer:\n"
      "    kind: {}\n"
      "    lr: {}\n"
      "    betas: [{}, {}]\n"
      "    epsilon: {}\n"
      "    weight_decay: {}\n"
      "    clip_norm: {}\n"
      "  schedule:\n"
      "    kind: {}\n"
      "    warmup: {}\n"
      "    final_ratio: {}\n",
      train.steps, train.microbatches, train.microbatch_size, ToString(train.dtype), train.seed,
      train.deterministic ? "  deterministic: true\n" : "", optimizer.kind, optimizer.lr,
      optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay,
      optimizer.clip_norm, train.schedule.kind, train.schedule.warmup, train.schedule.final_ratio);
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
  return fmt::format("recovery:\n  attempts: {}\n  every: {}\n  spares: {}\n", recovery.attempts,
                     OrAuto(recovery.every), recovery.spares);
}

}  // namespace

std::string ToYaml(const RunSpec& spec) {
  std::string out = fmt::format(
      "name: {}\n"
      "{}"
      "data:\n"
      "  text:\n",
      Quote(spec.name), config::ModelYaml(spec.model));
  for (const std::string& glob : spec.data.text) out += fmt::format("    - {}\n", Quote(glob));
  out += fmt::format(
      "  tokenizer: {}\n"
      "  seed: {}\n"
      "validation:\n"
      "  share: {}\n"
      "  every: {}\n"
      "  samples: {}\n",
      spec.data.tokenizer, spec.data.seed, spec.validation.share, spec.validation.every,
      spec.validation.samples);
  out += TrainYaml(spec.train);
  out += fmt::format(
      "pipeline:\n"
      "  stages: {}\n"
      "  schedule: {}\n"
      "  send_order: {}\n"
      "  recompute: {}\n"
      "  threads_per_stage: {}\n"
      "  depth: {}\n"
      "transport: {}\n",
      OrAuto(spec.pipeline.stages), ToString(spec.pipeline.schedule),
      ToString(spec.pipeline.send_order), spec.pipeline.recompute, spec.pipeline.threads_per_stage,
      OrAuto(spec.pipeline.depth), ToString(spec.transport));
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
