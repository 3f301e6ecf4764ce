// Chooses a codec for each direction of each boundary for which the run file says `auto`. Below,
// such a direction is called open. Codecs come from a ladder (codec/ladder.h), a list of codecs by
// their error. The finest codec has the smallest error, the coarsest the largest. Pure.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/ladder.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A step with finer codecs may be longer than a step with the fastest codecs by this share.
inline constexpr double kCodecTolerance = 0.02;

// Returns the codecs among which a plan chooses, the finest first (run/boundary/open_codecs.h). An
// OK result is never empty. kFailedPrecondition: a replay with `codecs: measured` names none.
StatusOr<std::vector<codec::Rung>> CodecsToChooseFrom(const RunSpec& spec, Direction direction);

// Returns the codecs of the assignment's boundaries, by replica and boundary, as in
// LinksSpec::chosen.
std::vector<std::vector<CodecPair>> CodecsOf(const Assignment& assignment);

// Returns the canonical run file of a plan: the request's run file, with the chosen codecs in place
// of `auto`.
std::string RunYamlOf(const RunSpec& spec, const Assignment& assignment);

// Gives a codec to each open direction, unless the run file has one from an earlier choice. Takes
// the finest codecs with which a simulated step is within kCodecTolerance of the step with the
// fastest codecs:
//  1. A time limit gives each direction its finest codec that keeps neither the link nor a codec
//     thread busy longer than the limit for one microbatch. The search takes the largest limit with
//     which the step stays within the tolerance.
//  2. Then each direction, the coarsest first, gets a finer codec while the step stays within the
//     tolerance.
// A link with an unknown rate keeps the coarsest codec.
//
// `plan` must have one replica, with its edges, its network and the maximum depth of each stage.
// Changes codecs, bytes and codec times of its edges. Returns a sentence for people about the
// chosen codecs; empty if no direction is open. Errors: as of CodecsToChooseFrom; kCancelled once
// `stop` is requested.
StatusOr<std::string> ChooseCodecs(const PlanRequest& request, const std::stop_token& stop,
                                   Plan* plan);

}  // namespace longhaul::coordinator
