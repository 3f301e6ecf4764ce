// Layer times that workers report: checks and comparisons. Pure.
#pragma once

#include <string>

#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Returns whether each of the times is finite, not negative and at most an hour. This limits the
// effect of a broken worker on a prediction.
bool IsPlausible(const v1::LayerTimes& times);

// For people: "gpt, hidden 256, context 256, microbatches of 1, fp32".
std::string MeasuredModel(const RunSpec& spec);

// True: a worker's layer times of the run `timed` are valid for `other`, too. The two differ at
// most in keys that do not affect timing (run/file/keys.h).
bool HaveSameLayerTimes(const RunSpec& timed, const RunSpec& other);

}  // namespace longhaul::coordinator
