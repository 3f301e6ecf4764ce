// Codecs ordered by their loss, from which a plan chooses if a run file says auto. The loss of a
// codec is known without a run: its relative error of normal values (family.h). Losses of training
// have the same order (docs/results/codecs.md). Codecs with state are left out, because their loss
// depends on earlier tensors.
//
// Threads: pure functions.
#pragma once

#include <span>

#include "codec/spec.h"

namespace longhaul::codec {

struct Rung {
  CodecSpec codec;  // canonical
  double error = 0;
};

// The rungs of all families, the finest first. The first loses nothing; each has fewer bits than
// the one before.
std::span<const Rung> LadderOfActivations();
// Gradients are sums over many tokens, so a codec's error must be 0 on average: all coarse rungs
// round at random.
std::span<const Rung> LadderOfGradients();
// Returns the rungs with a loss of at most `error`.
std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error);

}  // namespace longhaul::codec
