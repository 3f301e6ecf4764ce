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

// Adds the edges of a plan of one replica whose cells are set: one for each pair of neighbours, and
// a tied edge if the first and the last stage share a matrix. kFailedPrecondition if two workers
// cannot reach each other.
Status AddEdges(const PlanRequest& request, Plan* plan);
// True if links between workers with these endpoints are encrypted, by links.encrypt. With auto
// they are if an address is public.
bool SealsLinks(const RunSpec& spec, std::span<const std::vector<Endpoint>> endpoints);
bool SealsLinks(const RunSpec& spec, const std::vector<Cell>& cells);
bool HasRelays(const Assignment& assignment);
// Encrypts all edges if a relay carries one of them.
void SealIfRelayed(Assignment* assignment);
// Sets how the two cells of an edge reach each other.
void SetEnds(LinkEnds ends, Edge* edge);
// Returns the flow that `sender` would send over a boundary. If its codec is auto, takes the codec
// that an earlier plan chose for this boundary; without one, the coarsest that may be chosen.
StatusOr<Flow> FlowFrom(const PlanRequest& request, const CandidateWorker& sender,
                        Direction direction, std::optional<uint32_t> boundary = std::nullopt);
StatusOr<Flow> FlowWith(const CodecSpec& spec, const PlanRequest& request);
// Returns the run file's codecs for this worker; each may be auto.
const CodecPair& CodecsOfWorker(const RunSpec& spec, const std::string& worker);
// Returns the times that the sender measured to encode and the receiver to decode. A worker that
// did not measure this codec counts with its times of the run's own codec; 0: none are known.
FlowEstimate CodecTimesOf(const CandidateWorker& sender, const CandidateWorker& receiver,
                          const CodecSpec& codec, Direction direction);
// Returns what the two ends of a tied matrix send each other in a step: forward from the first
// stage, backward from the last one.
Flow TiedFlow(const PlanRequest& request, Direction direction);
// True if an edge of this kind can join two workers, so that AddEdges would not refuse it.
bool MayBeJoined(const RunSpec& spec, const CandidateWorker& upper, const CandidateWorker& lower,
                 EdgeKind kind);
// Checks codecs that predict activations by their tokens. kFailedPrecondition: such a codec is used
// for gradients, at a stage that does not get the tokens, or in a replay of measured codecs.
Status CheckPredictions(const PlanRequest& request, const Assignment& assignment);
// Adds to each cell the disk that the codecs of its edges need for records of samples.
// kFailedPrecondition if this is more than links.cache_limit.
Status AddMessages(const PlanRequest& request, Assignment* assignment);

}  // namespace longhaul::coordinator
