#include "codec/ladder.h"

#include <algorithm>
#include <vector>

#include "codec/registry.h"

namespace longhaul::codec {
namespace {

std::vector<Rung> Collect(std::vector<Choice> Family::*choices) {
  std::vector<Rung> all;
  for (const Family& family : Families()) {
    for (const auto& [codec, error] : family.*choices) all.push_back({CodecSpec(codec), error});
  }
  std::ranges::sort(all, {}, &Rung::error);
  return all;
}

}  // namespace

std::span<const Rung> LadderOfActivations() {
  static const auto& ladder = *new std::vector<Rung>(Collect(&Family::for_activations));
  return ladder;
}

std::span<const Rung> LadderOfGradients() {
  static const auto& ladder = *new std::vector<Rung>(Collect(&Family::for_gradients));
  return ladder;
}

std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error) {
  const auto beyond = std::ranges::find_if(
      ladder, [error](double of) { return of > error; }, &Rung::error);
  return ladder.first(static_cast<size_t>(beyond - ladder.begin()));
}

}  // namespace longhaul::codec
