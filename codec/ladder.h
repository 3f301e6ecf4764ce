// The ladders: lists of codecs ordered by their loss. A plan chooses from a ladder if the run file
// says auto. A codec's loss is its relative error on normal values (family.h), so it is known
// without a run. The training losses of runs with these codecs have the same order
// (docs/results/codecs.md). Codecs with state are left out, because their loss depends on earlier
// tensors.
//
// Threads: pure functions.
#pragma once

#include <span>

#include "codec/spec.h"

namespace longhaul::codec {

struct Rung {
  CodecSpec codec;  // canonical codec string
  double error = 0;
};

// Returns the ladder for activations. The first rung loses nothing (`none`); each further rung
// loses more and sends fewer bits.
std::span<const Rung> LadderOfActivations();
// Returns the ladder for gradients, ordered in the same way. Gradients are sums over many tokens,
// so a codec's error must be 0 on average; therefore all rungs after bf16 round stochastically.
std::span<const Rung> LadderOfGradients();
// Returns the first rungs of the ladder, those with a loss of at most `error`.
std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error);

}  // namespace longhaul::codec
