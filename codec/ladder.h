// Codecs in the order of what they lose, from which a plan chooses where a run file says auto. What
// a codec loses is its relative error |x' - x| / |x| of normal values, which is known without a
// run. Losses of training follow that order (docs/results/codecs.md). Codecs with state are not
// among them: what they lose depends on what was sent before.
//
// Threads: pure functions.
#ifndef LONGHAUL_CODEC_LADDER_H_
#define LONGHAUL_CODEC_LADDER_H_

#include <span>
#include <string_view>

namespace longhaul::codec {

struct Rung {
  std::string_view codec;  // canonical
  double error = 0;
};

// The finest first; each has fewer bits than the one before. The first one loses nothing.
std::span<const Rung> LadderOfActivations();
// Gradients are sums of many: what a codec loses has to be 0 on average. So all that round coarsely
// do it at random.
std::span<const Rung> LadderOfGradients();
// Those that lose at most that.
std::span<const Rung> RungsWithin(std::span<const Rung> ladder, double error);

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_LADDER_H_
