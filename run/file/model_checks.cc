// What the model is where a file leaves it open, and what it cannot be.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_split.h"
#include "run/file/run_spec_checks.h"
#include "run/model/family.h"
#include "run/tokens/token_file.h"

namespace longhaul::config {
namespace {

// The context of presets whose published one is longer, unless the run file says one: models are
// trained on sequences of about this length, and memory grows with it.
constexpr uint32_t kUsualContext = 2048;

// A boundary tensor's encoding must fit the 32 bits of a frame's length, in fp32 and with room for
// headers.
constexpr uint64_t kMostBoundaryElements = 1ull << 29;

const model::Preset* FindPreset(const std::string& name) {
  const std::vector<model::Preset>& presets = model::Presets();
  const auto it = std::find_if(presets.begin(), presets.end(),
                               [&](const model::Preset& preset) { return preset.name == name; });
  return it == presets.end() ? nullptr : &*it;
}

std::string PathOf(const model::Key& key) {
  return fmt::format("model.{}", key.name);
}

// `known`: a model that is complete, which `name` calls so. `path`: of the key that named it.
void FillFrom(const ModelSpec& known, const std::string& name, std::string_view path,
              Reader& reader, ModelSpec* spec) {
  if (reader.Has("model.family") && spec->family != known.family) {
    reader.Fail(reader.PlaceOf("model.family"),
                fmt::format("model.family: {} is of family {}, got {}; leave family out", name,
                            ToString(known.family), ToString(spec->family)));
  }
  spec->family = known.family;
  const auto fill = [&](std::string_view key, auto ModelSpec::*field) {
    const std::string of_key = fmt::format("model.{}", key);
    if (reader.Has(of_key)) return;
    spec->*field = known.*field;
    reader.Assume(of_key, path);
  };
  fill("layers", &ModelSpec::layers);
  fill("hidden", &ModelSpec::hidden);
  fill("heads", &ModelSpec::heads);
  fill("context", &ModelSpec::context);
  fill("vocabulary", &ModelSpec::vocabulary);
  for (const model::Key& key : model::FamilyOf(*spec).keys) {
    std::visit([&](const auto& value) { fill(key.name, value.field); }, key.value);
  }
}

// One that is not known is reported; what it would have said is not missing.
void AssumeAll(std::string_view path, Reader& reader) {
  for (const char* key : {"model.layers", "model.hidden", "model.heads", "model.context"}) {
    reader.Assume(key, path);
  }
}

// Keys that say another model than the one whose values are read: their shape, and what they are
// multiplied with. How positions turn, the norms' epsilon, and how experts are kept busy may
// differ.
std::vector<std::string> KeysThatDiffer(const ModelSpec& wanted, const ModelSpec& found) {
  std::vector<std::string> keys;
  const auto compare = [&](std::string_view key, const auto& a, const auto& b) {
    if (a != b) keys.push_back(fmt::format("model.{}", key));
  };
  compare("layers", wanted.layers, found.layers);
  compare("hidden", wanted.hidden, found.hidden);
  compare("heads", wanted.heads, found.heads);
  compare("vocabulary", wanted.vocabulary, found.vocabulary);
  for (const model::Key& key : model::FamilyOf(found).keys) {
    if (key.name.starts_with("rope_") || key.name.starts_with("balance") ||
        key.name == "norm_epsilon") {
      continue;
    }
    compare(key.name, model::TextOf(key, wanted), model::TextOf(key, found));
  }
  return keys;
}

// Ranks with channels of their own are another model for each number of them and each share.
void CheckRanksOfModel(const FoundModel& found, Reader& reader, const RunSpec& spec) {
  const GroupSpec& group = spec.group;
  if (!reader.Sound({"group.tensor", "group.p"})) return;
  if (found.shared_channels < 1) {
    if (group.tensor == found.ranks && group.shared_channels == found.shared_channels) return;
    reader.Fail(reader.PlaceOf("model.from"),
                fmt::format("model.from: the model in {} was trained by {} ranks with group.p {}, "
                            "and is another one with group: {{ tensor: {}, p: {} }}; expected "
                            "group: {{ tensor: {}, p: {} }}",
                            spec.weights.from, found.ranks, found.shared_channels,
                            group.tensor_auto ? "auto" : fmt::format("{}", group.tensor),
                            group.shared_channels, found.ranks, found.shared_channels));
  } else if (group.shared_channels < 1) {
    reader.Fail(reader.PlaceOf("group.p"),
                fmt::format("group.p: the model in {} has no channels of ranks' own, and the run "
                            "would begin as another model; leave p or model.from out",
                            spec.weights.from));
  }
}

void FillFromFolder(const FindModel& find_model, Reader& reader, RunSpec* spec) {
  const std::string& from = spec->weights.from;
  const Place place = reader.PlaceOf("model.from");
  const StatusOr<FoundModel> found = find_model(from);
  if (!found.ok()) {
    const std::vector<std::string> lines =
        absl::StrSplit(std::string(Message(found.status())), '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      reader.Fail(place, fmt::format("model.from: {}", line));
    }
    reader.Distrust("model.from");
    AssumeAll("model.from", reader);
    return;
  }
  CheckRanksOfModel(*found, reader, *spec);
  ModelSpec& model = spec->model;
  FillFrom(found->model, from, "model.from", reader, &model);
  for (const std::string& path : KeysThatDiffer(model, found->model)) {
    reader.Fail(reader.PlaceOf(path),
                fmt::format("{}: the model in {} has another; leave it out", path, from));
  }
  if (!reader.Has("model.tied") || spec->weights.tied_unsaid) {
    model.tied = spec->weights.tied_unsaid = found->model.tied;
    reader.Assume("model.tied", "model.from");
  } else if (found->model.tied && !model.tied && !spec->weights.split) {
    reader.Fail(reader.PlaceOf("model.tied"),
                fmt::format("model.tied: embedding and head of the model in {} are one matrix; say "
                            "split to begin both with it and train them apart",
                            from));
  } else if (!found->model.tied && model.tied) {
    reader.Fail(reader.PlaceOf("model.tied"),
                fmt::format("model.tied: embedding and head of the model in {} are two matrices; "
                            "leave it out",
                            from));
  }
}

void FailMissing(const model::Key& key, const model::RequiredKey& value, const ModelSpec& spec,
                 Reader& reader) {
  reader.Fail(reader.PlaceOf("model"),
              fmt::format("the key '{}' is missing; family {} needs {}, a whole number from 1 to "
                          "{}{}",
                          PathOf(key), ToString(spec.family), value.meaning, value.most,
                          spec.hidden == 0 ? ""
                                           : fmt::format(", for hidden {} often {}", spec.hidden,
                                                         value.usual(spec.hidden))));
}

// Said already, by FailMissing.
bool IsMissing(const model::Family& family, std::string_view name, const Reader& reader) {
  return std::any_of(family.keys.begin(), family.keys.end(), [&](const model::Key& key) {
    return key.name == name && std::holds_alternative<model::RequiredKey>(key.value) &&
           !reader.Has(PathOf(key));
  });
}

// Names the families that have the key.
std::string OwnersOf(const model::Key& key) {
  std::vector<std::string_view> owners;
  for (const model::Family* family : model::Families()) {
    if (model::FindKey(*family, key.name) != nullptr) owners.push_back(family->name);
  }
  return fmt::format("{}", fmt::join(owners, " or "));
}

void CheckVocabulary(const RunSpec& spec, Reader& reader) {
  if (!spec.model.vocabulary || !reader.Sound({"model.vocabulary", "data.tokenizer"})) return;
  if (!spec.data.sets.empty()) {
    if (*spec.model.vocabulary >= spec.data.vocabulary) return;
    reader.Fail(reader.PlaceOf("model.vocabulary"),
                fmt::format("model.vocabulary: {} rows are fewer than the {} tokens of the data "
                            "sets; prepare them with the model's tokenizer",
                            *spec.model.vocabulary, spec.data.vocabulary));
    return;
  }
  const auto tokenizer = Tokenizer::Create(spec.data.tokenizer);
  if (!tokenizer.ok() || *spec.model.vocabulary >= (*tokenizer)->vocabulary()) return;
  reader.Fail(
      reader.PlaceOf("model.vocabulary"),
      fmt::format("model.vocabulary: {} rows are fewer than the {} tokens of the tokenizer {}; "
                  "raise it, or 'auto' for as many",
                  *spec.model.vocabulary, (*tokenizer)->vocabulary(), spec.data.tokenizer));
}

}  // namespace

void CompleteModel(const std::string& preset, const FindModel& find_model, Reader& reader,
                   RunSpec* run) {
  ModelSpec* const spec = &run->model;
  if (reader.Has("model.preset") && reader.Has("model.from")) {
    reader.Fail(reader.PlaceOf("model.preset"),
                "model.preset: model.from says what the model is; leave preset out");
  }
  if (find_model && reader.Has("model.from")) {
    FillFromFolder(find_model, reader, run);
  } else if (const model::Preset* known = FindPreset(preset)) {
    ModelSpec model = known->model;
    model.context = std::min(model.context, kUsualContext);
    FillFrom(model, fmt::format("the preset {}", known->name), "model.preset", reader, spec);
  } else if (reader.Has("model.preset")) {
    AssumeAll("model.preset", reader);
  }
  for (const model::Key& key : model::FamilyOf(*spec).keys) {
    if (reader.Has(PathOf(key))) continue;
    model::LeaveOut(key, spec);
    if (const auto* required = std::get_if<model::RequiredKey>(&key.value)) {
      FailMissing(key, *required, *spec, reader);
    }
  }
}

void CheckModel(const RunSpec& spec, Reader& reader) {
  const ModelSpec& model = spec.model;
  const model::Family& family = model::FamilyOf(model);
  for (const model::Key& key : model::KeysOfFamilies()) {
    if (!reader.Sound({"model.family", "model.preset"})) break;
    if (model::FindKey(family, key.name) != nullptr || !reader.Has(PathOf(key))) continue;
    const std::string owners = OwnersOf(key);
    reader.Fail(
        reader.PlaceOf(PathOf(key)),
        fmt::format("{}: a key of family {}, and this model's family is {}; leave it out or "
                    "set model.family to {}",
                    PathOf(key), owners, family.name, owners));
  }
  if (reader.Sound({"model.family", "model.hidden", "model.heads"})) {
    for (const model::Problem& problem : model::Problems(model)) {
      const std::string path = fmt::format("model.{}", problem.key);
      if (reader.Sound({path}) && !IsMissing(family, problem.key, reader))
        reader.Fail(reader.PlaceOf(path), problem.text);
    }
  }
  CheckVocabulary(spec, reader);
  if (spec.replay && model.TrainsTiedMatrix() && spec.pipeline.stages != 1u &&
      reader.Sound({"model.tied", "pipeline.stages"})) {
    reader.Fail(
        reader.PlaceOf("model.tied"),
        fmt::format("model.tied: a replay has no gradient that the first and the last of "
                    "several stages could sum, and pipeline.stages is {}; say false",
                    spec.pipeline.stages ? fmt::format("{}", *spec.pipeline.stages) : "auto"));
  }
  if (spec.weights.tied_unsaid && spec.weights.from.empty() && reader.Sound({"model.tied"})) {
    reader.Fail(reader.PlaceOf("model.tied"),
                "model.tied: auto takes what a published model has, and there is no model.from; "
                "say true or false");
  }
  if (spec.weights.split && spec.weights.from.empty() && reader.Sound({"model.tied"})) {
    reader.Fail(reader.PlaceOf("model.tied"),
                "model.tied: split copies the matrix of a published model, and there is no "
                "model.from; say false");
  }
  if (spec.replay && !spec.weights.from.empty()) {
    reader.Fail(reader.PlaceOf("model.from"),
                "model.from: a replay learns nothing and needs no weights; say model.preset, or "
                "the model's keys");
  }
  if (!reader.Sound({"train.microbatch_size", "model.context", "model.hidden"})) return;
  const uint64_t copies = spec.train.dpo ? 2 : 1;  // run/boundary/boundary_shape.h
  const uint64_t tokens = copies * spec.train.microbatch_size * model.context;
  if (tokens > kMostBoundaryElements / model.hidden) {
    reader.Fail(
        reader.PlaceOf("model.context"),
        fmt::format(
            "{}train.microbatch_size x model.context x model.hidden = {}{} x {} x {} is more "
            "than the {} elements that a link carries at once; lower one of them",
            spec.train.dpo ? "2 (train.dpo) x " : "", spec.train.dpo ? "2 x " : "",
            spec.train.microbatch_size, model.context, model.hidden, kMostBoundaryElements));
  }
}

}  // namespace longhaul::config
