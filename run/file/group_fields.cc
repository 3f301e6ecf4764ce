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

bool KnowsModelOfGroup(const RunSpec& spec, const Reader& reader) {
  return reader.Sound({"model.from", "model.preset", "model.family", "model.hidden", "model.heads",
                       "model.kv_heads", "model.head_channels", "model.intermediate",
                       "model.vocabulary"}) &&
         model::Problems(spec.model).empty();
}

// Without adapters, which are refused by themselves.
std::vector<model::Parameter> SharedParameters(const RunSpec& spec) {
  ModelSpec model = spec.model;
  model.lora.reset();
  // Every vocabulary has more rows than a group may have ranks.
  return model::ParametersOf(model, model.VocabularyOver(kMostRanks), /*embedding=*/true,
                             /*head=*/true);
}

// A sentence for each kind of heads or channels that so many ranks cannot share.
void CheckShares(const RunSpec& spec, Reader& reader) {
  if (!KnowsModelOfGroup(spec, reader)) return;
  std::set<model::Unit> told;
  for (const model::Parameter& parameter : SharedParameters(spec)) {
    const Status status =
        model::ShareOf(spec.model, parameter, /*rank=*/0, spec.group.tensor).status();
    if (status.ok() || !told.insert(parameter.split.unit).second) continue;
    reader.Fail(reader.PlaceOf(kTensor), fmt::format("{}: {}", kTensor, Message(status)));
  }
}

// Keys of how ranks share a stage, where there is one.
void CheckOneRank(const GroupSpec& group, Reader& reader) {
  const auto check = [&reader](std::string_view key, bool says_something) {
    if (!says_something || !reader.Sound({key})) return;
    reader.Fail(reader.PlaceOf(key),
                fmt::format("{}: a stage of one rank ({} 1) exchanges nothing with others; leave "
                            "{} out, or raise {}",
                            key, kTensor, key, kTensor));
  };
  check("group.sequence", group.sequence);
  check("group.p", group.shared_channels < 1);
  check("group.forward", group.forward != GroupCollective::kNone);
  check("group.backward", group.backward != GroupCollective::kNone);
}

// What ranks have of the hidden state.
void CheckHidden(const RunSpec& spec, Reader& reader) {
  const GroupSpec& group = spec.group;
  if (!reader.Sound({"group.sequence", "group.p", "model.context", "model.family"})) return;
  if (group.sequence && spec.model.context % group.tensor != 0) {
    reader.Fail(reader.PlaceOf("group.sequence"),
                fmt::format("group.sequence: ranks have equally many of model.context's {} tokens, "
                            "and {} {} does not divide them; choose another number, or leave "
                            "sequence out",
                            spec.model.context, kTensor, group.tensor));
  }
  if (group.shared_channels == 1) return;
  if (group.sequence) {
    reader.Fail(reader.PlaceOf("group.p"),
                "group.p: channels of a rank's own are those of all tokens, and with "
                "group.sequence a rank has a part of them; leave one of the two out");
  }
  if (!spec.weights.from.empty()) {
    reader.Fail(reader.PlaceOf("group.p"),
                "group.p: a published model has no channels of ranks' own, and with model.from the "
                "run would begin as another model; leave one of the two out");
  }
  // Matrices of a block that no rank has a part of.
  if (!KnowsModelOfGroup(spec, reader)) return;
  for (const model::Parameter& parameter : SharedParameters(spec)) {
    if (parameter.role != model::Role::kBlock || !parameter.in_product ||
        !parameter.shape.is_matrix() || parameter.split.along != model::Along::kNothing) {
      continue;
    }
    reader.Fail(reader.PlaceOf("group.p"),
                fmt::format("group.p: {} is whole on every rank, which must see the same; choose a "
                            "family without experts, as llama or gpt, or leave p out",
                            parameter.name));
    return;
  }
}

}  // namespace

Field Group(GroupSpec* group) {
  const std::vector collectives = {GroupCollective::kNone, GroupCollective::kTaco,
                                   GroupCollective::kZip};
  return Section(
      "group", {Whole("tensor", &group->tensor, 1, kMostRanks), Flag("sequence", &group->sequence),
                Real("p", &group->shared_channels, {.least = 0, .most = 1}),
                Choice("forward", &group->forward, collectives),
                Choice("backward", &group->backward, collectives)});
}

void CheckGroup(const RunSpec& spec, Reader& reader) {
  const uint32_t ranks = spec.group.tensor;
  if (!reader.Sound({kTensor})) return;
  if (ranks == 1) {
    CheckOneRank(spec.group, reader);
    return;
  }
  CheckShares(spec, reader);
  CheckHidden(spec, reader);
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
  if (group.sequence) out += "  sequence: true\n";
  if (group.shared_channels != 1) out += fmt::format("  p: {}\n", group.shared_channels);
  const auto add = [&out](std::string_view key, GroupCollective what) {
    if (what != GroupCollective::kNone) out += fmt::format("  {}: {}\n", key, ToString(what));
  };
  add("forward", group.forward);
  add("backward", group.backward);
  return out;
}

}  // namespace longhaul::config
