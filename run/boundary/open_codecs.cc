#include "run/boundary/open_codecs.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "run/kinds/link_pairs.h"

namespace longhaul {
namespace {

// The error of the default pair's codec.
double DefaultError(Direction direction) {
  const bool down = direction == Direction::kForward;
  const CodecSpec given(down ? kDefaultPair.forward : kDefaultPair.backward);
  const CodecSpec canonical(*given.Get());
  const std::span<const codec::Rung> ladder =
      down ? codec::LadderOfActivations(/*by_tokens=*/true) : codec::LadderOfGradients();
  const auto rung = std::ranges::find(ladder, canonical, &codec::Rung::codec);
  LH_CHECK(rung != ladder.end(), "the default pair is not on the ladders");
  return rung->error;
}

}  // namespace

std::vector<codec::Rung> OpenCodecs(const RunSpec& spec, Direction direction) {
  // Tables of tokens learn from tensors, and a replay of measured times has none.
  const bool measured = spec.replay && !spec.replay->real_codecs;
  const std::span<const codec::Rung> ladder =
      direction == Direction::kForward
          ? codec::LadderOfActivations(spec.links.predicts && !measured)
          : codec::LadderOfGradients();
  std::vector<codec::Rung> open;
  for (const codec::Rung& rung :
       codec::RungsWithin(ladder, spec.links.error.value_or(DefaultError(direction)))) {
    if (!measured || spec.replay->TimesOf(rung.codec) != nullptr) open.push_back(rung);
  }
  return open;
}

}  // namespace longhaul
