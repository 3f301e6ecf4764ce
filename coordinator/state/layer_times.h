// Checks and compares layer times. A worker measures them before a plan is made: how long its
// devices take for each kind of layer of the model, forward and backward. Pure.
#pragma once

#include <string>

#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Returns whether each of the times is finite, not negative and at most an hour. This limits the
// effect of a broken worker on a prediction.
bool IsPlausible(const v1::LayerTimes& times);

// Describes for people what was timed: "gpt, hidden 256, context 256, microbatches of 1, fp32".
std::string MeasuredModel(const RunSpec& spec);

// Returns whether layer times that a worker measured for the run file `timed` are valid for
// `other`, too: the two differ only in keys that do not affect timing (run/file/keys.h).
bool HaveSameLayerTimes(const RunSpec& timed, const RunSpec& other);

}  // namespace longhaul::coordinator
