// A minimal run file for fuzzing: parsing a full one takes longer than everything else.
#pragma once

namespace longhaul::coordinator {

inline constexpr char kShortRun[] =
    "{name: tiny, model: {layers: 4, hidden: 64, heads: 2, context: 64}, data: {text: [a.txt]}, "
    "train: {steps: 10, microbatches: 2}}";

}  // namespace longhaul::coordinator
