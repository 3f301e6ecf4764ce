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

// Returns the rungs without those that have a twin: two rungs with the same error, one of which
// predicts by tokens. If `by_tokens`, that one stays, else the other.
std::vector<Rung> WithoutTwins(const std::vector<Rung>& all, bool by_tokens) {
  std::vector<Rung> kept;
  for (const Rung& rung : all) {
    const bool predicts = rung.codec.predicts_by_tokens();
    const bool has_twin = std::ranges::count(all, rung.error, &Rung::error) > 1;
    if (predicts ? by_tokens : !(by_tokens && has_twin)) kept.push_back(rung);
  }
  return kept;
}

}  // namespace

std::span<const Rung> LadderOfActivations(bool by_tokens) {
  static const auto& all = *new std::vector<Rung>(Collect(&Family::for_activations));
  static const auto& with = *new std::vector<Rung>(WithoutTwins(all, /*by_tokens=*/true));
  static const auto& without = *new std::vector<Rung>(WithoutTwins(all, /*by_tokens=*/false));
  return by_tokens ? with : without;
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
