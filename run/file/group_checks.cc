// What ranks of a group cannot share.
#include <fmt/core.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "run/file/run_spec_checks.h"
#include "run/model/family.h"
#include "run/model/share.h"

namespace longhaul::config {
namespace {

constexpr std::string_view kTensor = "group.tensor", kExpert = "group.expert",
                           kBothWays = "group.collective";

bool KnowsModelOfGroup(const RunSpec& spec, const Reader& reader) {
  return reader.Sound({"model.from", "model.preset", "model.family", "model.hidden", "model.heads",
                       "model.kv_heads", "model.head_channels", "model.intermediate",
                       "model.vocabulary"}) &&
         model::Problems(spec.model).empty();
}

// Without adapters, which are shared as their matrices are.
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
        model::ShareOf(spec.model, parameter, /*rank=*/0, {.count = spec.group.tensor}).status();
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
  check(kExpert, group.expert > 1 || group.expert_auto);
  check("group.sequence", group.sequence);
  check("group.p", group.shared_channels < 1);
  if (reader.Has(std::string(kBothWays))) {
    check(kBothWays, group.forward != GroupCollective::kNone);
    return;
  }
  check("group.forward", group.forward != GroupCollective::kNone);
  check("group.backward", group.backward != GroupCollective::kNone);
}

// How ranks divide a block's experts. Where their number is the plan's to choose, it says of each
// whether it can be.
void CheckExperts(const RunSpec& spec, Reader& reader) {
  if (!reader.Sound({kExpert, "model.family", "model.preset", "model.from"})) return;
  const GroupSpec& group = spec.group;
  const uint32_t parts = group.expert, ranks = group.tensor;
  const auto fail = [&](const std::string& text) {
    reader.Fail(reader.PlaceOf(kExpert), fmt::format("{}: {}", kExpert, text));
  };
  if (!spec.model.has_experts()) {
    if (parts == 1 && !group.expert_auto) return;
    fail(fmt::format(
        "no block of family {} has experts that {} could be made of; leave expert "
        "out, or choose family moe",
        ToString(spec.model.family), group.expert_auto ? "parts" : fmt::format("{} parts", parts)));
    return;
  }
  if (!group.tensor_auto && ranks % parts != 0) {
    fail(fmt::format("expected a number that divides the {} ranks of {}, got {}", ranks, kTensor,
                     parts));
  }
  if (reader.Sound({"model.experts"}) && spec.model.experts % parts != 0) {
    fail(
        fmt::format("expected a number that divides the {} experts of a block (model.experts), "
                    "got {}",
                    spec.model.experts, parts));
  }
  if (!group.tensor_auto && reader.Sound({"model.context"}) && spec.model.context % ranks != 0) {
    reader.Fail(reader.PlaceOf(kTensor),
                fmt::format("{}: each rank sends equally many of model.context's {} tokens to "
                            "experts, and {} does not divide them; choose another number of ranks",
                            kTensor, spec.model.context, ranks));
  }
}

// Which of the two would hold is nobody's guess.
void CheckBothWays(Reader& reader) {
  for (const std::string one : {"group.forward", "group.backward"}) {
    if (!reader.Has(std::string(kBothWays)) || !reader.Has(one)) continue;
    reader.Fail(reader.PlaceOf(one),
                fmt::format("{}: {} says it of both directions already; leave one of the two out",
                            one, kBothWays));
  }
}

// The times of a replay are those of one group.
void CheckReplayed(const RunSpec& spec, Reader& reader) {
  if (!spec.replay || !spec.group.is_auto()) return;
  const std::string_view key = spec.group.tensor_auto ? kTensor : kExpert;
  reader.Fail(reader.PlaceOf(key),
              fmt::format("{}: a replay has the times of the group that they were measured with, "
                          "and of no other; expected its number, got auto",
                          key));
}

// What no number of ranks would be chosen with. What some numbers cannot do, the plan says of each.
void CheckAuto(const GroupSpec& group, Reader& reader) {
  if (!reader.Sound({"group.p"}) || group.shared_channels == 1) return;
  reader.Fail(reader.PlaceOf("group.p"),
              fmt::format("group.p: ranks with channels of their own are another model for each "
                          "number of them, so nobody else may choose it; give {} a number, or "
                          "leave p out",
                          kTensor));
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
  if (reader.Sound({"train.optimizer.kind"}) && spec.train.optimizer.kind == OptimizerKind::kMuon) {
    reader.Fail(reader.PlaceOf("group.p"),
                "group.p: muon (train.optimizer.kind) updates whole matrices, and the parts of "
                "ranks with channels of their own are of no whole one; leave p out, or choose "
                "adamw");
  }
  if (group.sequence) {
    reader.Fail(reader.PlaceOf("group.p"),
                "group.p: channels of a rank's own are those of all tokens, and with "
                "group.sequence a rank has a part of them; leave one of the two out");
  }
  if (spec.model.lora) {
    reader.Fail(reader.PlaceOf("group.p"),
                "group.p: adapters of LoRA add to whole sums, and ranks with channels of their own "
                "have parts of them; leave p or train.lora out");
  }
  if (spec.model.has_experts()) {
    reader.Fail(
        reader.PlaceOf("group.p"),
        "group.p: an expert takes a token's channels whole, and no rank has them all; leave "
        "p out for a model with experts");
    return;
  }
  if (spec.model.norms != Norms::kPre) {
    reader.Fail(reader.PlaceOf("group.p"),
                fmt::format("group.p: a norm behind attention and MLP (model.norms: {}) sees a "
                            "rank's own channels, so that shared channels would differ from rank "
                            "to rank; leave p out, or choose a model with norms: pre",
                            ToString(spec.model.norms)));
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

void CheckGroup(const RunSpec& spec, Reader& reader) {
  CheckBothWays(reader);
  if (!reader.Sound({kTensor})) return;
  CheckReplayed(spec, reader);
  if (spec.group.tensor_auto) {
    CheckAuto(spec.group, reader);
    CheckExperts(spec, reader);
    return;
  }
  if (spec.group.tensor == 1) {
    CheckOneRank(spec.group, reader);
    return;
  }
  CheckShares(spec, reader);
  CheckExperts(spec, reader);
  CheckHidden(spec, reader);
}

std::vector<GroupSpec> GroupsLeftOpen(const RunSpec& spec, uint32_t most_ranks) {
  const GroupSpec& group = spec.group;
  std::vector<GroupSpec> groups;
  for (uint32_t ranks = group.tensor; ranks <= (group.tensor_auto ? most_ranks : group.tensor);
       ++ranks) {
    const std::vector<uint32_t> parts = group.expert_auto ? model::PartsOfExperts(spec.model, ranks)
                                                          : std::vector<uint32_t>{group.expert};
    for (const uint32_t number : parts) groups.push_back(group.Settled(ranks, number));
  }
  return groups;
}

}  // namespace longhaul::config
