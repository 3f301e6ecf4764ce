// A minimal run file for fuzzing: parsing a full one takes longer than everything else.
#ifndef LONGHAUL_COORDINATOR_STORE_FUZZ_SHORT_RUN_H_
#define LONGHAUL_COORDINATOR_STORE_FUZZ_SHORT_RUN_H_

namespace longhaul::coordinator {

inline constexpr char kShortRun[] =
    "{name: tiny, model: {layers: 4, hidden: 64, heads: 2, context: 64}, data: {text: [a.txt]}, "
    "train: {steps: 10, microbatches: 2}}";

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_FUZZ_SHORT_RUN_H_
