#include "run/file/lora_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/yaml/yaml_text.h"
#include "run/model/lora.h"

namespace longhaul::config {
namespace {

constexpr uint32_t kMostRank = 4096;
constexpr double kMostAlpha = 1e6;
constexpr size_t kLongestTarget = 200, kMostTargets = 100;
constexpr std::string_view kAllLinear = "all-linear";

// `targets: all-linear` or a list of modules.
Field Targets(std::vector<std::string>* target) {
  Field field;
  field.key = "targets";
  field.expected = "all-linear, or names of modules, such as [q_proj, v_proj]";
  field.read = [target, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                   const std::string& path) {
    std::vector<std::string> targets;
    const auto add = [&](const YAML::Node& item) {
      const auto name = ReadScalar(reader, item, path, expected);
      if (!name) return;
      if (name->empty() || name->size() > kLongestTarget || targets.size() == kMostTargets) {
        reader.FailExpected(item, path, expected);
      } else if (std::ranges::find(targets, *name) != targets.end()) {
        reader.Fail(item, fmt::format("{}: '{}' stands there twice", path, *name));
      } else {
        targets.push_back(*name);
      }
    };
    if (node.IsSequence() && node.size() > 0) {
      for (const auto& item : node) add(item);
    } else if (node.IsSequence()) {
      reader.Fail(node, fmt::format("{}: expected {}, got an empty list", path, expected));
    } else {
      add(node);
    }
    *target = std::move(targets);
  };
  return field;
}

// Whether the model is known well enough to ask for its modules.
bool KnowsModel(const Reader& reader) {
  return reader.Sound(
      {"model.from", "model.preset", "model.family", "model.hidden", "model.heads"});
}

}  // namespace

Field Lora(std::optional<LoraSpec>* lora) {
  Field field;
  field.key = "lora";
  field.expected = "a mapping with rank, alpha, targets";
  field.read = [lora](Reader& reader, const YAML::Node& node, const std::string& path) {
    LoraSpec spec = lora->value_or(LoraSpec{});
    reader.ReadMap(
        node, path,
        {Whole("rank", &spec.rank, 1, kMostRank),
         Real("alpha", &spec.alpha, {.least = 0, .most = kMostAlpha, .above_least = true}),
         Targets(&spec.targets)});
    *lora = std::move(spec);
  };
  return field;
}

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

std::string LoraYaml(const std::optional<LoraSpec>& lora) {
  if (!lora) return "";
  std::vector<std::string> targets;
  for (const std::string& target : lora->targets) targets.push_back(Quote(target));
  return fmt::format("  lora: {{ rank: {}, alpha: {}, targets: [{}] }}\n", lora->rank, lora->alpha,
                     fmt::join(targets, ", "));
}

}  // namespace longhaul::config
