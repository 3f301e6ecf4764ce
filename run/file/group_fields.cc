#include "run/file/group_fields.h"

#include <fmt/core.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "run/model/family.h"
#include "run/model/share.h"

namespace longhaul::config {
namespace {

constexpr uint32_t kMostRanks = 64;  // of a group: transport/collective
constexpr std::string_view kTensor = "group.tensor";

// A sentence for each kind of heads or channels that so many ranks cannot share.
void CheckShares(const RunSpec& spec, Reader& reader) {
  if (!reader.Sound({"model.from", "model.preset", "model.family", "model.hidden", "model.heads",
                     "model.kv_heads", "model.head_channels", "model.intermediate",
                     "model.vocabulary"}) ||
      !model::Problems(spec.model).empty()) {
    return;
  }
  ModelSpec model = spec.model;
  model.lora.reset();  // refused by itself
  std::set<model::Unit> told;
  // Every vocabulary has more rows than a group may have ranks.
  for (const model::Parameter& parameter :
       model::ParametersOf(model, model.VocabularyOver(kMostRanks), /*embedding=*/true,
                           /*head=*/true)) {
    const Status status = model::ShareOf(model, parameter, /*rank=*/0, spec.group.tensor).status();
    if (status.ok() || !told.insert(parameter.split.unit).second) continue;
    reader.Fail(reader.PlaceOf(kTensor), fmt::format("{}: {}", kTensor, Message(status)));
  }
}

// Of one rank.
void CheckCollectives(const GroupSpec& group, Reader& reader) {
  const auto check = [&reader](std::string key, GroupCollective what) {
    if (what == GroupCollective::kNone || !reader.Sound({key})) return;
    reader.Fail(reader.PlaceOf(key),
                fmt::format("{}: {} compresses what ranks of a stage send each other, and {} 1 "
                            "leaves one; leave {} out, or raise {}",
                            key, ToString(what), kTensor, key, kTensor));
  };
  check("group.forward", group.forward);
  check("group.backward", group.backward);
}

}  // namespace

Field Group(GroupSpec* group) {
  const std::vector collectives = {GroupCollective::kNone, GroupCollective::kTaco,
                                   GroupCollective::kZip};
  return Section("group", {Whole("tensor", &group->tensor, 1, kMostRanks),
                           Choice("forward", &group->forward, collectives),
                           Choice("backward", &group->backward, collectives)});
}

void CheckGroup(const RunSpec& spec, Reader& reader) {
  const uint32_t ranks = spec.group.tensor;
  if (!reader.Sound({kTensor})) return;
  if (ranks == 1) {
    CheckCollectives(spec.group, reader);
    return;
  }
  CheckShares(spec, reader);
  if (reader.Sound({"train.optimizer.kind"}) && spec.train.optimizer.kind == OptimizerKind::kMuon) {
    reader.Fail(reader.PlaceOf("train.optimizer.kind"),
                fmt::format("train.optimizer.kind: muon needs whole matrices, and each of the {} "
                            "ranks of a stage ({}) holds a part; choose adamw, or {} 1",
                            ranks, kTensor, kTensor));
  }
  if (spec.model.lora) {
    reader.Fail(reader.PlaceOf("train.lora"),
                fmt::format("train.lora: this version does not share adapters among the {} ranks "
                            "of a stage; leave lora out, or set {} to 1",
                            ranks, kTensor));
  }
  if (spec.replay) {
    reader.Fail(reader.PlaceOf(kTensor),
                fmt::format("{}: a replay sleeps for the times of one device a stage and has no "
                            "ranks, got {}; leave the section group or the section replay out",
                            kTensor, ranks));
  }
  if (reader.Sound({"model.tied", "pipeline.stages"}) && spec.model.TrainsTiedMatrix() &&
      spec.pipeline.stages != 1u) {
    reader.Fail(
        reader.PlaceOf(kTensor),
        fmt::format("{}: this version does not share the one matrix of embedding and head "
                    "among {} ranks where two stages hold it; set model.tied to {}, or "
                    "pipeline.stages or {} to 1",
                    kTensor, ranks, spec.weights.from.empty() ? "false" : "split", kTensor));
  }
}

std::string GroupYaml(const GroupSpec& group) {
  if (group == GroupSpec()) return "";
  std::string out = fmt::format("group:\n  tensor: {}\n", group.tensor);
  const auto add = [&out](std::string_view key, GroupCollective what) {
    if (what != GroupCollective::kNone) out += fmt::format("  {}: {}\n", key, ToString(what));
  };
  add("forward", group.forward);
  add("backward", group.backward);
  return out;
}

}  // namespace longhaul::config
