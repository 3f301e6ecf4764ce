// Helpers that the descriptors of all families share: common initial values, splits over ranks, and
// kinds of parameters. Internal to run/model. Pure.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "run/model/family.h"

namespace longhaul::model {

inline constexpr std::string_view kNormEpsilonDoc = "Added to the variance in norms";

inline constexpr Initial kZeros{.mean = 0, .deviation = 0};
inline constexpr Initial kOnes{.mean = 1, .deviation = 0};
inline constexpr Initial kNormal{.mean = 0, .deviation = 0.02};
// For matrices whose output is added to the residual stream. Each block adds two outputs, and the
// stream's variance must not grow with the number of layers.
inline Initial NormalOfResidual(const ModelSpec& spec) {
  return {.mean = 0, .deviation = kNormal.deviation / std::sqrt(2.0 * spec.layers)};
}

inline constexpr Split kWhole{};
inline constexpr Split kByToken{.along = Along::kRows, .unit = Unit::kToken};
inline constexpr Split kRows{.along = Along::kRows, .unit = Unit::kChannel};
inline constexpr Split kColumns{.along = Along::kColumns, .unit = Unit::kChannel};
inline constexpr Split kRowsByHead{.along = Along::kRows, .unit = Unit::kHead};
inline constexpr Split kRowsByKvHead{.along = Along::kRows, .unit = Unit::kKvHead};
inline constexpr Split kColumnsByHead{.along = Along::kColumns, .unit = Unit::kHead};

// The names of a parameter: Parameter::name and Parameter::published; '#' stands for the block.
struct Names {
  std::string_view global, published;
};
// A matrix that is an operand of matrix products (Parameter::in_product).
inline Parameter Factor(Role role, Names names, Shape shape, Initial initial, Split split) {
  return {.name = std::string(names.global),
          .published = std::string(names.published),
          .role = role,
          .shape = shape,
          .initial = initial,
          .in_product = true,
          .split = split};
}
// The bias of a matrix product in a block.
inline Parameter Bias(Names names, uint32_t outputs, Split split) {
  return Factor(Role::kBlock, names, {.rows = outputs}, kZeros, split);
}
// A table whose rows are looked up. A tied embedding is the head's matrix as well.
inline Parameter Table(Names names, Shape shape, Split split, bool tied) {
  Parameter table = Factor(Role::kEmbedding, names, shape, kNormal, split);
  table.in_product = tied;
  return table;
}
inline Parameter Norm(Role role, Names names, uint32_t channels, Initial initial) {
  return {.name = std::string(names.global),
          .published = std::string(names.published),
          .role = role,
          .shape = {.rows = channels},
          .initial = initial,
          .split = kWhole};
}

}  // namespace longhaul::model
