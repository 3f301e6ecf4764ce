// The edges of a plan: transport, dialling side, codecs, and the disk that codecs with state need.
// Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Adds the edges of a plan that has its cells: one for each pair of neighbours, and a tied edge if
// first and last stage share a matrix. kFailedPrecondition if two workers cannot reach each other.
Status AddEdges(const PlanRequest& request, Plan* plan);
// Whether links between workers with these endpoints are encrypted.
bool SealsLinks(const RunSpec& spec, std::span<const std::vector<Endpoint>> endpoints);
bool SealsLinks(const RunSpec& spec, const std::vector<Cell>& cells);
bool HasRelays(const Assignment& assignment);
// Encrypts all edges if a relay carries one of them.
void SealIfRelayed(Assignment* assignment);
// Sets how the two cells of an edge reach each other.
void SetEnds(LinkEnds ends, Edge* edge);
// Returns the flow that `sender` would send over a boundary. If the codec is auto: with the codec
// chosen for that boundary earlier, else the coarsest of the choice.
StatusOr<Flow> FlowFrom(const PlanRequest& request, const CandidateWorker& sender,
                        Direction direction, std::optional<uint32_t> boundary = std::nullopt);
StatusOr<Flow> FlowWith(const CodecSpec& spec, const PlanRequest& request);
// Returns the run file's codecs for this worker; each may be auto.
const CodecPair& CodecsOfWorker(const RunSpec& spec, const std::string& worker);
// Returns the codec's times measured by these two workers; 0 if they did not measure it.
FlowEstimate CodecTimesOf(const CandidateWorker& sender, const CandidateWorker& receiver,
                          const CodecSpec& codec, Direction direction);
// The flow of a tied matrix in a step: forward from the first stage, backward from the last one.
Flow TiedFlow(const PlanRequest& request, Direction direction);
// Whether AddEdges could join two workers by such an edge.
bool MayBeJoined(const RunSpec& spec, const CandidateWorker& upper, const CandidateWorker& lower,
                 EdgeKind kind);
// kFailedPrecondition if a codec that predicts by tokens is used for gradients, at a stage that
// does not get the tokens, or in a replay of measured codecs.
Status CheckPredictions(const PlanRequest& request, const Assignment& assignment);
// Adds to each cell the disk that the codecs of its edges need for records of samples.
// kFailedPrecondition if this is more than links.cache_limit.
Status AddMessages(const PlanRequest& request, Assignment* assignment);

}  // namespace longhaul::coordinator
