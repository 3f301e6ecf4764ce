#include "run/model/family.h"

#include <fmt/core.h>

#include "base/check.h"
#include "run/model/families.h"

namespace longhaul {

std::string_view ToString(ModelFamily family) {
  return model::FamilyOf(family).name;
}

namespace model {
namespace {

std::string Numbered(std::string_view name, uint32_t block) {
  const size_t number = name.find('#');
  if (number == std::string_view::npos) return std::string(name);
  return fmt::format("{}{}{}", name.substr(0, number), block, name.substr(number + 1));
}

void AddRangeProblem(const Key& key, const ModelSpec& spec, std::vector<Problem>* problems) {
  const auto check = [&](uint32_t value, uint32_t most) {
    if (value >= 1 && value <= most) return;
    problems->push_back(
        {key.name, fmt::format("model.{}: expected a whole number from 1 to {}, got {}", key.name,
                               most, value)});
  };
  if (const auto* whole = std::get_if<WholeKey>(&key.value)) check(spec.*whole->field, whole->most);
  if (const auto* whole = std::get_if<RequiredKey>(&key.value)) {
    check(spec.*whole->field, whole->most);
  }
}

}  // namespace

std::string PlacedParameter::Name() const {
  return Numbered(parameter.name, block);
}

std::string PlacedParameter::PublishedName() const {
  return Numbered(parameter.published, block);
}

const std::vector<const Family*>& Families() {
  static const std::vector<const Family*> families = {&GptFamily(), &LlamaFamily()};
  return families;
}

const Family& FamilyOf(ModelFamily id) {
  for (const Family* family : Families()) {
    if (family->id == id) return *family;
  }
  LH_CHECK(false, "family {} has no descriptor", static_cast<int>(id));
}

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = [] {
    std::vector<Preset> all;
    for (const Family* family : Families()) {
      all.insert(all.end(), family->presets.begin(), family->presets.end());
    }
    return all;
  }();
  return presets;
}

std::vector<Problem> Problems(const ModelSpec& spec) {
  std::vector<Problem> problems;
  if (spec.hidden % spec.heads != 0) {
    problems.push_back(
        {"heads",
         fmt::format("model.heads: {} heads do not divide model.hidden {}; choose a divisor",
                     spec.heads, spec.hidden)});
  }
  const Family& family = FamilyOf(spec);
  for (const Key& key : family.keys) AddRangeProblem(key, spec, &problems);
  return problems.empty() ? family.problems(spec) : problems;
}

std::vector<PlacedParameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows,
                                          const Part& part) {
  std::vector<PlacedParameter> all;
  const std::vector<Parameter> parameters = FamilyOf(spec).parameters(spec, vocabulary_rows);
  const auto add = [&](Role role, uint32_t block) {
    for (const Parameter& parameter : parameters) {
      if (parameter.role == role) all.push_back({parameter, block});
    }
  };
  if (part.embedding) add(Role::kEmbedding, 0);
  for (uint32_t i = 0; i < part.layers; ++i) add(Role::kBlock, part.first_layer + i);
  if (part.head) add(Role::kHead, 0);
  return all;
}

}  // namespace model
}  // namespace longhaul
