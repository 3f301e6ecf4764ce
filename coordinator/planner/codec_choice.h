// Which codec each link of a plan has in each direction, where the run file leaves that open. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_CODEC_CHOICE_H_
#define LONGHAUL_COORDINATOR_PLANNER_CODEC_CHOICE_H_

#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/ladder.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A step that is longer by this share than that of the fastest codecs is as good, if what is sent
// is finer.
inline constexpr double kCodecTolerance = 0.02;

// Among which a plan chooses, the finest first: those of the ladder that lose at most links.error;
// in a replay of measured codecs those whose times the run file has. kFailedPrecondition where that
// is none.
StatusOr<std::vector<codec::Rung>> CodecsToChooseFrom(const RunSpec& spec, Direction direction);

// What the plan's boundaries send, as LinksSpec::chosen.
std::vector<std::vector<CodecPair>> CodecsOf(const Assignment& assignment);

// The run file of a plan: the request's, with the codecs that were chosen where it leaves any open.
std::string RunYamlOf(const RunSpec& spec, const Assignment& assignment);

// Gives each boundary's directions that are left open a codec, unless the run file has one that was
// chosen before. The finest with which a simulated step is within kCodecTolerance of that of the
// fastest: first all links send the finest with which none of them is busy for longer than some
// time, which is as long as it may be; then link by link, the coarsest first, a finer one while the
// step allows it. A link whose rate is not known has the coarsest. Takes a plan of one replica with
// edges, network, and the most depth that its cells can hold. Says for people what was chosen; "":
// nothing was open. kCancelled once `stop` is requested.
StatusOr<std::string> ChooseCodecs(const PlanRequest& request, const std::stop_token& stop,
                                   Plan* plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_CODEC_CHOICE_H_
