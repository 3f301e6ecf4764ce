// The codecs among which a plan may choose where the run file says `auto`. Pure.
#pragma once

#include <vector>

#include "base/ids.h"
#include "codec/ladder.h"
#include "run/file/run_spec.h"

namespace longhaul {

// Returns the ladder's codecs (codec/ladder.h) for this direction, the finest first. The last one
// has at most the error links.error or, where the run file does not set it, is that of the pair
// `default` (run/kinds/link_pairs.h). Activations are predicted by their tokens unless
// links.predicts is false. A replay with `codecs: measured` has the codecs that replay.codec_times
// names; this may be none.
std::vector<codec::Rung> OpenCodecs(const RunSpec& spec, Direction direction);

}  // namespace longhaul
