// What `train.lora` is where a file leaves it open, and what it cannot be.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "run/file/run_spec_checks.h"
#include "run/model/lora.h"

namespace longhaul::config {
namespace {

constexpr uint32_t kMostRank = 4096;
constexpr std::string_view kAllLinear = "all-linear";

// Whether the model is known well enough to ask for its modules.
bool KnowsModel(const Reader& reader) {
  return reader.Sound(
      {"model.from", "model.preset", "model.family", "model.hidden", "model.heads"});
}

}  // namespace

void CompleteLora(Reader& reader, ModelSpec* model) {
  if (!model->lora) return;
  LoraSpec& lora = *model->lora;
  if (!reader.Has("train.lora.rank")) {
    reader.Fail(reader.PlaceOf("train.lora"),
                fmt::format("the key 'train.lora.rank' is missing; expected a whole number from 1 "
                            "to {}, often 8 or 16",
                            kMostRank));
  }
  if (!reader.Has("train.lora.alpha")) lora.alpha = 2.0 * lora.rank;
  if (!KnowsModel(reader)) return;
  if (!reader.Has("train.lora.targets")) lora.targets = model::FamilyOf(*model).usual_targets;
  if (lora.targets.size() == 1 && lora.targets[0] == kAllLinear) {
    lora.targets = model::TargetsOf(*model);
  }
}

void CheckLora(const RunSpec& spec, Reader& reader) {
  if (!spec.model.lora) return;
  if (spec.weights.from.empty() && reader.Sound({"model.from"})) {
    reader.Fail(reader.PlaceOf("train.lora"),
                "train.lora: adapters are trained over a published model, and there is no "
                "model.from; name its folder there, or leave lora out");
  }
  if (!KnowsModel(reader) || !reader.Sound({"train.lora.targets"})) return;
  for (const std::string& target : spec.model.lora->targets) {
    if (model::IsModule(spec.model, target)) continue;
    reader.Fail(reader.PlaceOf("train.lora.targets"),
                fmt::format("train.lora.targets: no block of family {} has a module '{}'; expected "
                            "{}, or some of {}",
                            ToString(spec.model.family), target, kAllLinear,
                            fmt::join(model::TargetsOf(spec.model), ", ")));
  }
}

}  // namespace longhaul::config
