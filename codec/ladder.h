// The ladders: lists of codecs in ascending order of their error. If the run file says `auto`, the
// planner (planner/codec_choice.h) chooses from a ladder. A codec's error is its relative error on
// normally distributed values (family.h), so the error is known without a run. The training losses
// of runs with these codecs have the same order (docs/results/codecs.md). Codecs that remember
// samples are left out, because their error depends on earlier tensors.
//
// Threads: any. The functions cannot fail. The ladders stay valid until the program ends.
#pragma once

#include <span>

#include "codec/spec.h"

namespace longhaul::codec {

struct Rung {
  CodecSpec codec;  // canonical codec string
  double error = 0;
};

// Returns the ladder for activations. The first rung is `none`, with error 0; each further rung has
// a larger error and sends fewer bits. `by_tokens`: both sides of a link may know the tokens and
// keep tables of them. Then `predict/C` is in the place of each codec C over which the ladder has
// predict. The error is that of C, which `predict/C` has before it has learned anything.
std::span<const Rung> LadderOfActivations(bool by_tokens);
// Returns the ladder for gradients, in the same order. Gradients are sums over many tokens, so the
// mean of a codec's errors must be 0: all rungs after bf16 round stochastically or with dither.
std::span<const Rung> LadderOfGradients();
// Returns the first part of the ladder: the rungs whose error is at most `error`. Empty if `error`
// is negative.
std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error);

}  // namespace longhaul::codec
