// What `train.lora` is where a file leaves it open, and what it cannot be.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
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

std::vector<std::string> Sorted(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  return texts;
}

// Takes from the folder what the file leaves out. What the file has must agree, except the dropout,
// which is no property of the adapters' numbers.
void FillFromAdapters(const FindAdapters& find_adapters, Reader& reader, RunSpec* spec) {
  const std::string from = "train.lora.from", &folder = spec->weights.adapters;
  const StatusOr<LoraSpec> found = find_adapters(folder, spec->model);
  if (!found.ok()) {
    const std::vector<std::string> lines =
        absl::StrSplit(std::string(Message(found.status())), '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      reader.Fail(reader.PlaceOf(from), fmt::format("{}: {}", from, line));
    }
    reader.Distrust(from);
    for (const char* const key : {"train.lora.rank", "train.lora.alpha", "train.lora.targets"}) {
      reader.Assume(key, from);
    }
    return;
  }
  LoraSpec& lora = *spec->model.lora;
  if (lora.targets.size() == 1 && lora.targets[0] == kAllLinear) {
    lora.targets = model::TargetsOf(spec->model);
  }
  // `text`: turns a value into text for the message.
  const auto take = [&](std::string_view name, auto LoraSpec::*field, const auto& same,
                        const auto& text) {
    const std::string key = fmt::format("train.lora.{}", name);
    if (!reader.Has(key)) {
      reader.Assume(key, from);
    } else if (reader.Sound({key}) && !same(lora.*field, (*found).*field)) {
      reader.Fail(reader.PlaceOf(key),
                  fmt::format("{}: expected {}, as the adapters in {} have it, got {}; leave {} "
                              "out, or leave train.lora.from out to begin with new adapters",
                              key, text((*found).*field), folder, text(lora.*field), name));
    }
    lora.*field = (*found).*field;
  };
  const auto plain = [](const auto& value) { return fmt::format("{}", value); };
  take("rank", &LoraSpec::rank, std::equal_to<>(), plain);
  take("alpha", &LoraSpec::alpha, std::equal_to<>(), plain);
  take("rslora", &LoraSpec::rslora, std::equal_to<>(), plain);
  take(
      "targets", &LoraSpec::targets,
      [](const auto& a, const auto& b) { return Sorted(a) == Sorted(b); },
      [](const auto& names) { return fmt::format("[{}]", fmt::join(names, ", ")); });
  if (!reader.Has("train.lora.dropout")) lora.dropout = found->dropout;
}

}  // namespace

void CompleteLora(const FindAdapters& find_adapters, Reader& reader, RunSpec* spec) {
  if (!spec->model.lora) return;
  ModelSpec& model = spec->model;
  LoraSpec& lora = *model.lora;
  if (find_adapters && !spec->weights.adapters.empty() && reader.Sound({"train.lora.from"})) {
    // Without the model nobody knows which adapters there must be.
    if (!spec->weights.from.empty() && KnowsModel(reader)) {
      FillFromAdapters(find_adapters, reader, spec);
    } else {
      reader.Assume("train.lora.rank", "train.lora.from");
    }
  }
  if (!reader.Has("train.lora.rank")) {
    reader.Fail(reader.PlaceOf("train.lora"),
                fmt::format("the key 'train.lora.rank' is missing; expected a whole number from 1 "
                            "to {}, often 8 or 16",
                            kMostRank));
  }
  if (!reader.Has("train.lora.alpha")) lora.alpha = 2.0 * lora.rank;
  if (!KnowsModel(reader)) return;
  if (!reader.Has("train.lora.targets")) lora.targets = model::FamilyOf(model).usual_targets(model);
  if (lora.targets.size() == 1 && lora.targets[0] == kAllLinear) {
    lora.targets = model::TargetsOf(model);
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
