#include "run/file/model_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "run/model/family.h"
#include "run/tokens/token_file.h"

namespace longhaul::config {
namespace {

// A boundary tensor's encoding must fit the 32 bits of a frame's length, in fp32 and with room for
// headers.
constexpr uint64_t kMostBoundaryElements = 1ull << 29;

const model::Preset* FindPreset(const std::string& name) {
  const std::vector<model::Preset>& presets = model::Presets();
  const auto it = std::find_if(presets.begin(), presets.end(),
                               [&](const model::Preset& preset) { return preset.name == name; });
  return it == presets.end() ? nullptr : &*it;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const model::Preset& preset : model::Presets()) names.push_back(preset.name);
  return names;
}

std::vector<ModelFamily> FamilyIds() {
  std::vector<ModelFamily> ids;
  for (const model::Family* family : model::Families()) ids.push_back(family->id);
  return ids;
}

std::string PathOf(const model::Key& key) {
  return fmt::format("model.{}", key.name);
}

bool HasKey(const model::Family& family, std::string_view name) {
  return std::any_of(family.keys.begin(), family.keys.end(),
                     [&](const model::Key& key) { return key.name == name; });
}

// Each key once, although several families may have one.
std::vector<model::Key> KeysOfFamilies() {
  std::vector<model::Key> keys;
  for (const model::Family* family : model::Families()) {
    for (const model::Key& key : family->keys) {
      const bool known = std::any_of(keys.begin(), keys.end(), [&](const model::Key& other) {
        return other.name == key.name;
      });
      if (!known) keys.push_back(key);
    }
  }
  return keys;
}

Field FieldOf(const model::Key& key, ModelSpec* spec) {
  const std::string name(key.name);
  return std::visit(
      [&]<class Value>(const Value& value) {
        auto* const target = &(spec->*value.field);
        if constexpr (std::is_same_v<Value, model::FlagKey>) {
          return Flag(name, target);
        } else if constexpr (std::is_same_v<Value, model::RealKey>) {
          return Real(name, target, {.least = 0, .most = value.most, .above_least = true});
        } else {
          return Whole(name, target, 1, value.most);
        }
      },
      key.value);
}

void FillFrom(const model::Preset& preset, Reader& reader, ModelSpec* spec) {
  if (reader.Has("model.family") && spec->family != preset.model.family) {
    reader.Fail(reader.PlaceOf("model.family"),
                fmt::format("model.family: the preset {} is of family {}, got {}; leave family out",
                            preset.name, ToString(preset.model.family), ToString(spec->family)));
  }
  spec->family = preset.model.family;
  const auto fill = [&](std::string_view key, auto ModelSpec::*field) {
    const std::string path = fmt::format("model.{}", key);
    if (reader.Has(path)) return;
    spec->*field = preset.model.*field;
    reader.Assume(path, "model.preset");
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

// Of the families that have it.
std::string OwnersOf(const model::Key& key) {
  std::vector<std::string_view> owners;
  for (const model::Family* family : model::Families()) {
    if (HasKey(*family, key.name)) owners.push_back(family->name);
  }
  return fmt::format("{}", fmt::join(owners, " or "));
}

void CheckVocabulary(const RunSpec& spec, Reader& reader) {
  if (!spec.model.vocabulary || !reader.Sound({"model.vocabulary", "data.tokenizer"})) return;
  const auto tokenizer = Tokenizer::Create(spec.data.tokenizer);
  if (!tokenizer.ok() || *spec.model.vocabulary >= (*tokenizer)->vocabulary()) return;
  reader.Fail(
      reader.PlaceOf("model.vocabulary"),
      fmt::format("model.vocabulary: {} rows are fewer than the {} tokens of the tokenizer {}; "
                  "raise it, or 'auto' for as many",
                  *spec.model.vocabulary, (*tokenizer)->vocabulary(), spec.data.tokenizer));
}

}  // namespace

Field Model(ModelSpec* spec, std::string* preset) {
  Table table = {OneOf("preset", preset, PresetNames()),
                 Choice("family", &spec->family, FamilyIds()),
                 Required(Whole("layers", &spec->layers, 1, 4096)),
                 Required(Whole("hidden", &spec->hidden, 1, 1u << 17)),
                 Required(Whole("heads", &spec->heads, 1, 1u << 12)),
                 Required(Whole("context", &spec->context, 1, 1u << 22)),
                 Flag("tied", &spec->tied),
                 WholeOrAuto("vocabulary", &spec->vocabulary, 1, 1u << 24)};
  for (const model::Key& key : KeysOfFamilies()) table.push_back(FieldOf(key, spec));
  return Section("model", std::move(table));
}

void CompleteModel(const std::string& preset, Reader& reader, ModelSpec* spec) {
  if (const model::Preset* known = FindPreset(preset)) {
    FillFrom(*known, reader, spec);
  } else if (reader.Has("model.preset")) {
    // One that is not known is reported; what it would have said is not missing.
    for (const char* path : {"model.layers", "model.hidden", "model.heads", "model.context"}) {
      reader.Assume(path, "model.preset");
    }
  }
  for (const model::Key& key : model::FamilyOf(*spec).keys) {
    if (reader.Has(PathOf(key))) continue;
    if (const auto* whole = std::get_if<model::WholeKey>(&key.value); whole && whole->same_as) {
      spec->*whole->field = spec->*whole->same_as;
    }
    if (const auto* required = std::get_if<model::RequiredKey>(&key.value)) {
      FailMissing(key, *required, *spec, reader);
    }
  }
}

void CheckModel(const RunSpec& spec, Reader& reader) {
  const ModelSpec& model = spec.model;
  const model::Family& family = model::FamilyOf(model);
  for (const model::Key& key : KeysOfFamilies()) {
    if (!reader.Sound({"model.family", "model.preset"})) break;
    if (HasKey(family, key.name) || !reader.Has(PathOf(key))) continue;
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
  if (model.tied && spec.pipeline.stages != 1u && reader.Sound({"model.tied", "pipeline.stages"})) {
    reader.Fail(
        reader.PlaceOf("model.tied"),
        fmt::format("model.tied: true needs pipeline.stages: 1, got {}; embedding and head "
                    "would lie on different workers",
                    spec.pipeline.stages ? fmt::format("{}", *spec.pipeline.stages) : "auto"));
  }
  if (!reader.Sound({"train.microbatch_size", "model.context", "model.hidden"})) return;
  const uint64_t tokens = uint64_t{spec.train.microbatch_size} * model.context;
  if (tokens > kMostBoundaryElements / model.hidden) {
    reader.Fail(
        reader.PlaceOf("model.context"),
        fmt::format("train.microbatch_size x model.context x model.hidden = {} x {} x {} is more "
                    "than the {} elements that a link carries at once; lower one of them",
                    spec.train.microbatch_size, model.context, model.hidden,
                    kMostBoundaryElements));
  }
}

std::string ModelYaml(const ModelSpec& spec) {
  std::string out = fmt::format(
      "model:\n"
      "  family: {}\n"
      "  layers: {}\n"
      "  hidden: {}\n"
      "  heads: {}\n"
      "  context: {}\n"
      "  tied: {}\n",
      ToString(spec.family), spec.layers, spec.hidden, spec.heads, spec.context, spec.tied);
  if (spec.vocabulary) out += fmt::format("  vocabulary: {}\n", *spec.vocabulary);
  for (const model::Key& key : model::FamilyOf(spec).keys) {
    std::visit(
        [&](const auto& value) { out += fmt::format("  {}: {}\n", key.name, spec.*value.field); },
        key.value);
  }
  return out;
}

}  // namespace longhaul::config
