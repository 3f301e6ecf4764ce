#include "run/model/lora.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace longhaul::model {
namespace {

constexpr std::string_view kWeight = ".weight";

// A parameter's name without ".weight".
std::string_view ModuleOf(std::string_view name) {
  LH_CHECK(name.ends_with(kWeight), "{} is no module's weight", name);
  return name.substr(0, name.size() - kWeight.size());
}

bool Matches(std::string_view target, std::string_view module) {
  if (!module.ends_with(target)) return false;
  return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

// Matrices that are multiplied by in the type of products: a router's is not.
bool CanBeAdapted(const Parameter& parameter) {
  return parameter.is_block_matrix() && parameter.in_product && !parameter.adapter;
}

bool IsAdapted(const LoraSpec& lora, const Parameter& parameter) {
  if (!CanBeAdapted(parameter)) return false;
  const std::string_view module = ModuleOf(parameter.published);
  return std::ranges::any_of(lora.targets,
                             [&](std::string_view target) { return Matches(target, module); });
}

// `which`: "A" or "B". `shared`: how ranks divide the matrix where each has a part of this adapter.
// Where they divide it the other way, each has all of this adapter, for its part of the product.
Parameter AdapterOf(const Parameter& matrix, std::string_view which, Shape shape, Initial initial,
                    Along shared) {
  const Along along = matrix.split.along;
  const bool has_part = along == shared || along == Along::kExperts;
  const auto name = [&](const std::string& of_matrix) {
    return fmt::format("{}.lora_{}.weight", ModuleOf(of_matrix), which);
  };
  return {.name = name(matrix.name),
          .published = std::string(kAdapterPrefix) + name(matrix.published),
          .role = matrix.role,
          .shape = shape,
          .initial = initial,
          .in_product = true,
          .split = has_part ? matrix.split : Split{},
          .for_own_part = matrix.for_own_part || (!has_part && along != Along::kNothing),
          .adapter = true};
}

Parameter AOf(const LoraSpec& lora, const Parameter& matrix) {
  // As uniform numbers up to 1 / sqrt(inputs).
  const double deviation = 1 / std::sqrt(3.0 * matrix.shape.columns);
  return AdapterOf(matrix, "A", {.rows = lora.rank, .columns = matrix.shape.columns},
                   {.mean = 0, .deviation = deviation}, Along::kColumns);
}

Parameter BOf(const LoraSpec& lora, const Parameter& matrix) {
  Parameter b =
      AdapterOf(matrix, "B", {.rows = matrix.shape.rows, .columns = lora.rank}, {}, Along::kRows);
  b.published_rows = matrix.published_rows;
  b.published_first_row = matrix.published_first_row;
  return b;
}

// Numbers the adapters of matrices that are one published module.
void NumberParts(std::vector<Parameter>* all) {
  std::map<std::string, uint32_t> parts;
  for (Parameter& parameter : *all) {
    if (parameter.adapter) parameter.published_part = parts[parameter.published]++;
  }
  for (Parameter& parameter : *all) {
    if (parameter.adapter) parameter.published_parts = parts.at(parameter.published);
  }
}

std::vector<Parameter> MatricesOfBlocks(const ModelSpec& spec) {
  std::vector<Parameter> all = FamilyOf(spec).parameters(spec, /*vocabulary_rows=*/1);
  std::erase_if(all, [](const Parameter& parameter) { return !CanBeAdapted(parameter); });
  return all;
}

}  // namespace

std::vector<std::string> TargetsOf(const ModelSpec& spec) {
  std::vector<std::string> targets;
  for (const Parameter& matrix : MatricesOfBlocks(spec)) {
    const std::string_view module = ModuleOf(matrix.published);
    const std::string_view last = module.substr(module.rfind('.') + 1);
    if (std::ranges::find(targets, last) == targets.end()) targets.emplace_back(last);
  }
  return targets;
}

bool IsModule(const ModelSpec& spec, std::string_view target) {
  return std::ranges::any_of(MatricesOfBlocks(spec), [&](const Parameter& matrix) {
    return Matches(target, ModuleOf(matrix.published));
  });
}

std::vector<Parameter> WithAdapters(const LoraSpec& lora, std::vector<Parameter> published) {
  std::vector<Parameter> all;
  for (size_t i = 0; i < published.size(); ++i) {
    Parameter& parameter = all.emplace_back(std::move(published[i]));
    parameter.frozen = true;
    if (CanBeAdapted(parameter)) parameter.quantized = lora.quantize_base;
    if (!IsAdapted(lora, parameter)) continue;
    const Parameter matrix = parameter;
    const bool has_bias = i + 1 < published.size() &&
                          published[i + 1].name == std::string(ModuleOf(matrix.name)) + ".bias";
    if (has_bias) {
      all.push_back(std::move(published[++i]));
      all.back().frozen = true;
    }
    all.push_back(AOf(lora, matrix));
    all.push_back(BOf(lora, matrix));
  }
  NumberParts(&all);
  return all;
}

bool HasAdapters(const LoraSpec& lora, const PlacedParameter& matrix) {
  return IsAdapted(lora, matrix.parameter);
}

Adapters AdaptersOf(const LoraSpec& lora, const PlacedParameter& matrix) {
  LH_CHECK(HasAdapters(lora, matrix), "{} has no adapters", matrix.Name());
  return {{AOf(lora, matrix.parameter), matrix.block}, {BOf(lora, matrix.parameter), matrix.block}};
}

void Merge(const LoraSpec& lora, const Shape& shape, std::span<const float> a,
           std::span<const float> b, std::span<float> matrix) {
  const size_t columns = shape.columns, rank = lora.rank;
  LH_CHECK(a.size() == rank * columns && b.size() == rank * shape.rows &&
               matrix.size() == shape.elements(),
           "adapters of {} and {} values for a matrix of {}", a.size(), b.size(), matrix.size());
  const auto scale = static_cast<float>(lora.scale());
  std::vector<float> change(columns);
  for (size_t row = 0; row < shape.rows; ++row) {
    std::ranges::fill(change, 0.0f);
    for (size_t k = 0; k < rank; ++k) {
      const float factor = b[row * rank + k];
      const float* const of_a = &a[k * columns];
      for (size_t i = 0; i < columns; ++i) change[i] += factor * of_a[i];
    }
    float* const values = &matrix[row * columns];
    for (size_t i = 0; i < columns; ++i) values[i] += scale * change[i];
  }
}

}  // namespace longhaul::model
