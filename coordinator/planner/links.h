// The edges of a plan: who dials, over what, with which codecs, and what these remember. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_LINKS_H_
#define LONGHAUL_COORDINATOR_PLANNER_LINKS_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The edges of a plan that has cells: one for each pair of neighbours. kFailedPrecondition where
// they cannot reach each other.
Status AddEdges(const PlanRequest& request, Plan* plan);
// Whether links between workers with these endpoints are encrypted.
bool SealsLinks(const RunSpec& spec, std::span<const std::vector<Endpoint>> endpoints);
bool SealsLinks(const RunSpec& spec, const std::vector<Cell>& cells);
bool HasRelays(const Assignment& assignment);
// Where a relay carries one of the edges, all are encrypted.
void SealIfRelayed(Assignment* assignment);
// How the two cells of an edge reach each other.
void SetEnds(LinkEnds ends, Edge* edge);
// What a worker would send of each microbatch over a boundary, in either direction. Of a codec that
// is auto it is what was chosen for that boundary or, where none was, the coarsest of the choice.
StatusOr<Flow> FlowFrom(const PlanRequest& request, const CandidateWorker& sender,
                        Direction direction, std::optional<uint32_t> boundary = std::nullopt);
StatusOr<Flow> FlowWith(const std::string& codec_text, const PlanRequest& request);
// What the run file says of what the worker sends; auto where it leaves that open.
const CodecPair& CodecsOfWorker(const RunSpec& spec, const std::string& worker);
// As these two have timed the codec; 0 where they have not.
FlowEstimate CodecTimesOf(const CandidateWorker& sender, const CandidateWorker& receiver,
                          const std::string& codec, Direction direction);
// What is sent of a tied matrix in a step: from the first stage, or from the last one.
Flow TiedFlow(const PlanRequest& request, Direction direction);
// Whether AddEdges could join two workers by such an edge.
bool MayBeJoined(const RunSpec& spec, const CandidateWorker& upper, const CandidateWorker& lower,
                 EdgeKind kind);
// kFailedPrecondition where a codec that predicts by tokens is used for gradients, at a stage that
// is not told the tokens, or in a replay of measured codecs.
Status CheckPredictions(const PlanRequest& request, const Assignment& assignment);
// What the codecs of the edges remember, to the cells at their ends; kFailedPrecondition where that
// is not allowed.
Status AddMessages(const PlanRequest& request, Assignment* assignment);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_LINKS_H_
