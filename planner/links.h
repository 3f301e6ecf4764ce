// The edges of a plan, which are links between two cells (a cell is a stage of one replica): their
// transport, dialling side and codecs, and the disk that codecs with state need. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Adds the edges to a plan of one replica that has its cells: an edge for each pair of neighbours,
// and a tied edge if the first and the last stage share a matrix. kFailedPrecondition if two
// workers cannot reach each other, or if two unlike devices would share a matrix.
Status AddEdges(const PlanRequest& request, Plan* plan);
// True if the links of a run between workers with these endpoints are encrypted. links.encrypt
// decides; with auto, links are encrypted if any address is public or a host name.
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
// Returns the flow with this codec, which must not be auto.
StatusOr<Flow> FlowWith(const CodecSpec& spec, const PlanRequest& request);
// Returns the run file's codecs for this worker; each may be auto.
const CodecPair& CodecsOfWorker(const RunSpec& spec, const std::string& worker);
// Returns the times that the sender measured to encode and the receiver to decode. If a worker did
// not measure this codec, its time for the run's own codec counts. 0: it measured neither.
FlowEstimate CodecTimesOf(const CandidateWorker& sender, const CandidateWorker& receiver,
                          const CodecSpec& codec, Direction direction);
// Returns what one end of a tied matrix sends the other end in a step. Forward: the first stage
// sends. Backward: the last stage sends.
Flow TiedFlow(const PlanRequest& request, Direction direction);
// True if an edge of this kind can join two workers, so that AddEdges would not refuse it.
bool MayBeJoined(const RunSpec& spec, const CandidateWorker& upper, const CandidateWorker& lower,
                 EdgeKind kind);
// Checks the use of codecs that predict activations by their tokens. kFailedPrecondition: such a
// codec sends gradients, or its stage does not get the tokens, or a replay has measured codecs.
Status CheckPredictions(const PlanRequest& request, const Assignment& assignment);
// Sets for each cell the disk that the codecs of its edges need for records of samples.
// kFailedPrecondition: a cell needs more than links.cache_limit, or a replay has measured codecs.
Status AddMessages(const PlanRequest& request, Assignment* assignment);

}  // namespace longhaul::coordinator
