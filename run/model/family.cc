#include "run/model/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "run/model/families.h"
#include "run/model/lora.h"

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
  const auto check = [&](uint32_t value, uint32_t least, uint32_t most) {
    if (value >= least && value <= most) return;
    problems->push_back(
        {key.name, fmt::format("model.{}: expected a whole number from {} to {}, got {}", key.name,
                               least, most, value)});
  };
  if (const auto* whole = std::get_if<WholeKey>(&key.value)) {
    check(spec.*whole->field, whole->least, whole->most);
  }
  if (const auto* whole = std::get_if<RequiredKey>(&key.value)) {
    check(spec.*whole->field, 1, whole->most);
  }
  if (const auto* real = std::get_if<RealKey>(&key.value)) {
    const double value = spec.*real->field;
    if (!(value > 0 && value <= real->most) && !(real->may_be_zero && value == 0)) {
      problems->push_back(
          {key.name, fmt::format("model.{}: expected {}a number above 0 and up to {}, got {}",
                                 key.name, real->may_be_zero ? "0, or " : "", real->most, value)});
    }
  }
  if (const auto* reals = std::get_if<RealsKey>(&key.value)) {
    for (const double value : spec.*reals->field) {
      if (value > 0 && value <= reals->most) continue;
      problems->push_back(
          {key.name, fmt::format("model.{}: expected numbers above 0 and up to {}, got {}",
                                 key.name, reals->most, value)});
      break;
    }
  }
}

}  // namespace

std::string TextOf(const Key& key, const ModelSpec& spec) {
  return std::visit(
      [&]<class Value>(const Value& value) {
        if constexpr (std::is_same_v<Value, RealsKey>) {
          return fmt::format("[{}]", fmt::join(spec.*value.field, ", "));
        } else if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(spec.*value.field)>>) {
          return std::string(ToString(spec.*value.field));
        } else {
          return fmt::format("{}", spec.*value.field);
        }
      },
      key.value);
}

void LeaveOut(const Key& key, ModelSpec* spec) {
  std::visit(
      [&]<class Value>(const Value& value) {
        if constexpr (std::is_same_v<Value, RealKey>) {
          spec->*value.field = value.left_out;
        } else if constexpr (std::is_same_v<Value, WholeKey>) {
          spec->*value.field =
              value.same_as != nullptr ? spec->*value.same_as : ModelSpec().*value.field;
        } else if constexpr (!std::is_same_v<Value, RequiredKey>) {
          spec->*value.field = ModelSpec().*value.field;
        }
      },
      key.value);
}

std::string PlacedParameter::Name() const {
  return Numbered(parameter.name, block);
}

std::string PlacedParameter::PublishedName() const {
  return Numbered(parameter.published, block);
}

const Key* FindKey(const Family& family, std::string_view name) {
  const auto it = std::ranges::find(family.keys, name, &Key::name);
  return it == family.keys.end() ? nullptr : &*it;
}

std::vector<Key> KeysOfFamilies() {
  std::vector<Key> keys;
  for (const Family* family : Families()) {
    for (const Key& key : family->keys) {
      if (std::ranges::find(keys, key.name, &Key::name) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

const std::vector<const Family*>& Families() {
  static const std::vector<const Family*> families = [] {
    std::vector<const Family*> all;
    for (const auto family : kFamilies) all.push_back(&family());
    return all;
  }();
  return families;
}

const Family& FamilyOf(ModelFamily id) {
  const auto i = static_cast<size_t>(id);
  LH_CHECK(i < std::size(kFamilies) && kFamilies[i]().id == id, "family {} has no descriptor", i);
  return kFamilies[i]();
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
  if (spec.head_channels == 0 && spec.hidden % spec.heads != 0) {
    problems.push_back(
        {"heads",
         fmt::format("model.heads: {} heads do not divide model.hidden {}; choose a divisor",
                     spec.heads, spec.hidden)});
  }
  const Family& family = FamilyOf(spec);
  for (const Key& key : family.keys) AddRangeProblem(key, spec, &problems);
  return problems.empty() ? family.problems(spec) : problems;
}

std::vector<Parameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows, bool embedding,
                                    bool head) {
  ModelSpec of_part = spec;
  if (spec.lora && !(embedding && head)) of_part.tied = false;
  std::vector<Parameter> all = FamilyOf(spec).parameters(of_part, vocabulary_rows);
  std::erase_if(all, [&](const Parameter& parameter) {
    return (parameter.role == Role::kEmbedding && !embedding && !(head && parameter.is_tied())) ||
           (parameter.role == Role::kHead && !head);
  });
  if (!embedding) {
    std::stable_partition(all.begin(), all.end(), [](const Parameter& parameter) {
      return parameter.role != Role::kEmbedding;
    });
  }
  return spec.lora ? WithAdapters(*spec.lora, std::move(all)) : all;
}

std::vector<PlacedParameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows,
                                          const Part& part) {
  std::vector<PlacedParameter> all;
  const std::vector<Parameter> parameters =
      ParametersOf(spec, vocabulary_rows, part.embedding, part.head);
  const auto add = [&](Role role, uint32_t block, bool repeated = false) {
    for (const Parameter& parameter : parameters) {
      if (parameter.role == role) all.push_back({parameter, block, repeated});
    }
  };
  if (part.embedding) add(Role::kEmbedding, 0);
  for (uint32_t i = 0; i < part.layers; ++i) add(Role::kBlock, part.first_layer + i);
  if (part.head) add(Role::kHead, 0);
  if (!part.embedding) add(Role::kEmbedding, 0, true);
  return all;
}

}  // namespace model
}  // namespace longhaul
