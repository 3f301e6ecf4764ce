// What replicas cannot train together.
#include <fmt/core.h>

#include <string_view>

#include "run/file/run_spec_checks.h"

namespace longhaul::config {
namespace {

using replicas::GradientForm;
using replicas::ParameterForm;

constexpr std::string_view kReplicas = "pipeline.replicas", kGradients = "pipeline.gradients",
                           kParameters = "pipeline.parameters", kLost = "recovery.replicas";

bool LosesSomething(const ReplicasSpec& replicas) {
  return replicas.gradients.form != GradientForm::kFp32 ||
         replicas.parameters != ParameterForm::kFp32;
}

void CheckOneReplica(const ReplicasSpec& replicas, Reader& reader) {
  const auto check = [&reader](std::string_view key, bool says_something) {
    if (!says_something || !reader.Sound({key})) return;
    reader.Fail(reader.PlaceOf(key),
                fmt::format("{}: one replica ({} 1) sends no other anything; leave {} out, or "
                            "raise {}",
                            key, kReplicas, key, kReplicas));
  };
  check(kGradients, replicas.gradients != replicas::GradientOptions());
  check(kParameters, replicas.parameters != ParameterForm::kFp32);
}

// Replicas that train apart are alike after an exchange alone: then they can be saved.
void CheckApart(const RunSpec& spec, Reader& reader) {
  if (!spec.replicas.trains_apart()) return;
  const replicas::LocalSgdOptions& local = spec.replicas.gradients.local;
  if (local.delay > 0 && local.delay * local.steps < 1) {
    reader.Fail(reader.PlaceOf(kGradients),
                fmt::format("{}: a delay of {} of {} steps is less than one step; raise it to {} "
                            "or more, or leave it out",
                            kGradients, local.delay, local.steps, 1.0 / local.steps));
  }
  const auto check = [&](std::string_view key, uint64_t steps) {
    if (!reader.Sound({key}) || steps % local.steps == 0) return;
    reader.Fail(reader.PlaceOf(key),
                fmt::format("{}: expected a multiple of the {} steps that local-sgd's replicas "
                            "train apart ({}), got {}",
                            key, local.steps, kGradients, steps));
  };
  check("train.steps", spec.train.steps);
  check("checkpoint.every", spec.checkpoint.every);
  check("recovery.every", spec.recovery.every.value_or(0));
}

// What replicas cannot do yet.
void CheckSupported(const RunSpec& spec, Reader& reader) {
  const auto refuse = [&reader](std::string_view what, std::string_view instead) {
    reader.Fail(reader.PlaceOf(kReplicas),
                fmt::format("{}: this version does not train {} with several replicas; {}, or "
                            "leave {} out",
                            kReplicas, what, instead, kReplicas));
  };
  if (spec.model.has_experts() && spec.model.balance == Balance::kBias) {
    refuse("experts that are balanced by a bias", "set model.balance to loss");
  }
  if (spec.model.TrainsTiedMatrix() && spec.pipeline.stages != 1u &&
      LosesSomething(spec.replicas)) {
    refuse("a matrix that two stages hold through codecs that round",
           fmt::format("set {} to none and {} to fp32", kGradients, kParameters));
  }
}

// What going on with fewer replicas needs.
void CheckContinue(const RunSpec& spec, Reader& reader) {
  if (spec.recovery.replicas == LostReplica::kExact) return;
  if (spec.recovery.attempts == 0 && reader.Sound({kLost, "recovery.attempts"})) {
    reader.Fail(reader.PlaceOf(kLost),
                fmt::format("{}: continue goes on after a loss, and recovery.attempts 0 ends the "
                            "run at the first one; raise recovery.attempts, or leave {} out",
                            kLost, kLost));
  }
  if (spec.replicas.trains_apart()) {
    reader.Fail(reader.PlaceOf(kLost),
                fmt::format("{}: in this version replicas that train apart ({} local-sgd) keep "
                            "their number, because each has an optimizer of its own; leave {} out",
                            kLost, kGradients, kLost));
  }
}

}  // namespace

void CheckReplicas(const RunSpec& spec, Reader& reader) {
  if (!reader.Sound({kReplicas, kGradients, kParameters})) return;
  CheckContinue(spec, reader);
  if (spec.replicas.count == 1 && !spec.replicas.count_auto) {
    CheckOneReplica(spec.replicas, reader);
    return;
  }
  CheckApart(spec, reader);
  CheckSupported(spec, reader);
}

}  // namespace longhaul::config

namespace longhaul {

RunSpec RunSpec::WithReplicas(uint32_t count) const {
  RunSpec spec = *this;
  if (count == 1) spec.replicas = ReplicasSpec();
  spec.replicas.count = count;
  spec.replicas.count_auto = false;
  return spec;
}

RunSpec RunSpec::WithChosenReplicas(uint32_t count) const {
  RunSpec spec = WithReplicas(count);
  spec.train.microbatches /= count;
  return spec;
}

}  // namespace longhaul
