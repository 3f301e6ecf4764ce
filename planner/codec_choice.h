// Chooses a codec for each direction of each boundary if the run file says `auto`. Pure.
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

// Returns the codecs among which a plan chooses, the finest first: the rungs of the ladder with a
// loss of at most links.error; in a replay of measured codecs the codecs whose times the run file
// has. kFailedPrecondition if there are none.
StatusOr<std::vector<codec::Rung>> CodecsToChooseFrom(const RunSpec& spec, Direction direction);

// Returns the codecs of the assignment's boundaries, in the form of LinksSpec::chosen.
std::vector<std::vector<CodecPair>> CodecsOf(const Assignment& assignment);

// Returns the canonical run file of a plan: the request's, with the chosen codecs in place of open
// ones.
std::string RunYamlOf(const RunSpec& spec, const Assignment& assignment);

// Gives a codec to each open direction of a boundary, unless the run file has one from an earlier
// choice. Takes the finest codecs with which a simulated step is within kCodecTolerance of the step
// with the fastest codecs. First all links get the finest codec with which no link is busy longer
// than some time, and this time is raised as far as the step allows. Then each link, the coarsest
// first, gets a finer codec while the step allows it. A link with an unknown rate gets the
// coarsest. Takes a plan of one replica with edges, network, and the maximum depth of its cells.
// Returns a sentence for people; empty: no codec was open. kCancelled once `stop` is requested.
StatusOr<std::string> ChooseCodecs(const PlanRequest& request, const std::stop_token& stop,
                                   Plan* plan);

}  // namespace longhaul::coordinator
