// Codecs in the order of what they lose. A plan chooses among them where a run file says auto. What
// a codec loses is known without a run: its relative error of normal values (family.h). Losses of
// training follow that order (docs/results/codecs.md). Codecs with state are not among them,
// because what they lose depends on what was sent before.
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

// The rungs of all families, the finest first. The first one loses nothing; each has fewer bits
// than the one before.
std::span<const Rung> LadderOfActivations();
// Gradients are sums of many, so what a codec loses has to be 0 on average: all rungs that round
// coarsely do it at random.
std::span<const Rung> LadderOfGradients();
// The rungs that lose at most `error`.
std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error);

}  // namespace longhaul::codec
