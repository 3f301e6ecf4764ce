// The edges of a plan, which are links between two cells (a cell is a stage of one replica): their
// transport, dialling side and codecs, and the disk that codecs with state need. The upper one of
// two neighbours is nearer to stage 0. Pure.
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
// and a tied edge if the first and the last stage share a matrix. request.workers must be the
// cells' workers, stage by stage. kFailedPrecondition if two workers cannot reach each other, or if
// two unlike devices would share a matrix. Other errors: as of FlowFrom.
Status AddEdges(const PlanRequest& request, Plan* plan);
// True if the links of a run between workers with these endpoints (a list for each worker) are
// encrypted. links.encrypt decides; with auto, links are encrypted if any address is public or a
// host name.
bool SealsLinks(const RunSpec& spec, std::span<const std::vector<Endpoint>> endpoints);
bool SealsLinks(const RunSpec& spec, const std::vector<Cell>& cells);
// True if a relay carries an edge.
bool HasRelays(const Assignment& assignment);
// Encrypts all edges if a relay carries one of them.
void SealIfRelayed(Assignment* assignment);
// Sets the edge's transport, dialling side and relays.
void SetEnds(LinkEnds ends, Edge* edge);
// Returns the flow that `sender` would send over a boundary, without rate and latency. If the
// sender's codec is auto, takes the codec that an earlier plan chose for boundary `boundary`. If
// there is none, or `boundary` is nullopt, takes the coarsest that may be chosen. Errors: as of
// FlowWith and CodecsToChooseFrom (codec_choice.h).
StatusOr<Flow> FlowFrom(const PlanRequest& request, const CandidateWorker& sender,
                        Direction direction, std::optional<uint32_t> boundary = std::nullopt);
// Returns the flow with this codec, without rate and latency. An error of the codec string
// (CodecSpec::Get), also for `auto`, is returned.
StatusOr<Flow> FlowWith(const CodecSpec& spec, const PlanRequest& request, Direction direction);
// Returns the run file's codecs for the worker of this name; each may be auto. The reference points
// into `spec`.
const CodecPair& CodecsOfWorker(const RunSpec& spec, const std::string& worker);
// Returns the times that the sender measured to encode and the receiver to decode one microbatch.
// If a worker did not measure this codec, its time for the run's own codec in this direction
// counts. 0: the worker measured neither.
FlowEstimate CodecTimesOf(const CandidateWorker& sender, const CandidateWorker& receiver,
                          const CodecSpec& codec, Direction direction);
// Returns the flow that one end of a tied matrix sends the other end, with its bytes in a step.
// Forward: the first stage sends. Backward: the last stage sends.
Flow TiedFlow(const PlanRequest& request, Direction direction);
// True if an edge of this kind can join two workers, so that AddEdges would not refuse it.
bool MayBeJoined(const RunSpec& spec, const CandidateWorker& upper, const CandidateWorker& lower,
                 EdgeKind kind);
// Checks the use of codecs that predict activations by their tokens. kFailedPrecondition: such a
// codec sends gradients, or a replay has measured codecs.
Status CheckPredictions(const PlanRequest& request, const Assignment& assignment);
// Adds the bytes of the token ids that follow blobs (run/boundary/carried_tokens.h). Call it once,
// with the codecs that the plan keeps.
void AddCarriedTokens(const PlanRequest& request, Assignment* assignment);
// Sets for each cell the bytes of disk that the codecs of its edges need for records of samples
// (run/boundary/message_footprint.h). kFailedPrecondition: a cell needs more than
// links.cache_limit, or a replay has measured codecs.
Status AddMessages(const PlanRequest& request, Assignment* assignment);

}  // namespace longhaul::coordinator
