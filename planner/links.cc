#include "planner/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/hash.h"
#include "base/units.h"
#include "codec/codec.h"
#include "codec/predict/format.h"
#include "planner/codec_choice.h"
#include "run/boundary/boundary_shape.h"
#include "run/boundary/carried_tokens.h"
#include "run/boundary/message_footprint.h"
#include "run/plan/chain.h"
#include "run/tokens/token_file.h"

namespace longhaul::coordinator {
namespace {

// Checks that `who` may keep this footprint on disk for `codec`.
Status CheckCacheLimit(const RunSpec& spec, const MessageFootprint& footprint, std::string_view who,
                       std::string_view codec) {
  if (footprint.total() <= spec.links.cache_limit_bytes) return absl::OkStatus();
  const auto bytes = [](uint64_t count) {
    return fmt::format("{} ({} bytes)", FormatBytes(count), count);
  };
  return FailedPrecondition(
      "{} needs {} of disk for the message buffers of {}: {} for every sample of the text and up "
      "to {} for the undo journal; links.cache_limit is {}: raise it, checkpoint more often, use "
      "less text, or choose a codec without buffers",
      who, bytes(footprint.total()), codec, bytes(footprint.records), bytes(footprint.journal),
      bytes(spec.links.cache_limit_bytes));
}

const LinkException* ExceptionOf(const RunSpec& spec, const std::string& worker) {
  for (const auto& [name, exception] : spec.links.by_worker) {
    if (name == worker) return &exception;
  }
  return nullptr;
}

const Endpoint* EndpointOf(const CandidateWorker& worker, TransportKind transport) {
  for (const Endpoint& endpoint : worker.endpoints) {
    if (endpoint.transport == ToString(transport)) return &endpoint;
  }
  return nullptr;
}

bool HasAddress(const CandidateWorker& worker, TransportKind transport) {
  const Endpoint* endpoint = EndpointOf(worker, transport);
  return endpoint != nullptr && !endpoint->addresses.empty();
}

// Why `from` does not reach `to`; null: no attempt has failed.
const std::string* ProblemOf(const CandidateWorker& from, const CandidateWorker& to,
                             TransportKind transport) {
  const auto problem = from.does_not_reach.find({to.id, transport});
  return problem == from.does_not_reach.end() ? nullptr : &problem->second;
}

bool MayReach(const CandidateWorker& from, const CandidateWorker& to, TransportKind transport) {
  return HasAddress(to, transport) && ProblemOf(from, to, transport) == nullptr;
}

// Relays at which both could meet; none where one worker's version has no relays. A hash of the
// pair orders them, so that relays share the work. The coordinator comes last, because others need
// it for more than relaying.
std::vector<Relay> RelaysBetween(const CandidateWorker& upper, const CandidateWorker& lower) {
  std::vector<Relay> relays;
  for (const CandidateWorker* worker : {&upper, &lower}) {
    if (EndpointOf(*worker, TransportKind::kRelay) == nullptr) return relays;
  }
  for (const Relay& relay : upper.relays) {
    const bool is_end = relay.worker == upper.id || relay.worker == lower.id;
    const auto of_lower = std::ranges::find(lower.relays, relay);
    if (!is_end && of_lower != lower.relays.end()) relays.push_back(relay);
  }
  const std::string pair =
      std::min(upper.id, lower.id).value() + std::max(upper.id, lower.id).value();
  const auto rank = [&](const Relay& relay) {
    const std::string of_pair = pair + relay.worker.value();
    return std::pair(relay.worker.value().empty(), Checksum64(std::as_bytes(std::span(of_pair))));
  };
  std::ranges::sort(relays, {}, rank);
  relays.resize(std::min(relays.size(), kMostRelays));
  return relays;
}

uint64_t Windows(const PlanRequest& request) {
  return WindowsOf(request.data.tokens - request.data.validation_tokens,
                   request.spec.model.context);
}

// Mean bytes of an encoded slice over the run. A codec with state sends a sample whole when it
// comes for the first time.
uint64_t UsualBytes(const PlanRequest& request, const codec::Codec& codec, Direction direction) {
  const codec::Shape shape = SliceShape(request.spec, direction);
  if (codec.TableRows(1) > 0) {
    // As a rule ids have 2 bytes.
    const uint64_t more =
        codec::predict::BytesOfId(request.data.vocabulary) - codec::predict::BytesOfId(1);
    return codec.UsualEncodedBytes(shape) + more * shape.samples * shape.tokens;
  }
  if (codec.MessageBytes(shape) == 0) return codec.UsualEncodedBytes(shape);
  const auto most = static_cast<double>(codec.MaxEncodedBytes(shape));
  const auto least = static_cast<double>(codec.MinEncodedBytes(shape));
  return static_cast<uint64_t>(
      std::lround(least + (most - least) * ShareOfFirstVisits(request.spec, Windows(request))));
}

// Why two workers of such an edge talk to each other: the end of "workers a and b ...".
std::string_view WhyTheyTalk(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kTied:
      return "hold the one matrix of embedding and head (model.tied: true)";
    case EdgeKind::kState:
      return "send each other copies of checkpoints";
    case EdgeKind::kReplicas:
      return "hold the same stage of two replicas";
    default:
      return "are neighbours";
  }
}

// Both ends of a tied matrix apply the same update, which devices of two kinds round differently.
Status CheckAlike(const CandidateWorker& upper, const CandidateWorker& lower) {
  const bool known = !upper.device.empty() && !lower.device.empty();
  if (upper.on_gpu == lower.on_gpu && !(upper.on_gpu && known && upper.device != lower.device)) {
    return absl::OkStatus();
  }
  const auto device = [](const CandidateWorker& worker) {
    return !worker.device.empty() ? worker.device : worker.on_gpu ? "a GPU" : "its CPU";
  };
  return FailedPrecondition(
      "workers {} and {} are to hold one matrix as embedding and head (model.tied: true), and "
      "compute on {} and on {}, which do not round alike; let two workers of one kind be first and "
      "last, or say `tied: split`",
      upper.name, lower.name, device(upper), device(lower));
}

// Number of different tokens among `tokens`, by Heaps' law with the constants of English text and
// vocabularies of 50,000 to 150,000.
uint64_t DifferentTokens(uint64_t tokens) {
  return static_cast<uint64_t>(30 * std::pow(static_cast<double>(tokens), 0.52));
}

// A host name counts as public: it may lead anywhere.
bool IsPublic(const Endpoint& endpoint) {
  return std::ranges::any_of(endpoint.addresses, [](const std::string& address) {
    const StatusOr<HostPort> parsed = ParseHostPort(address);
    return !parsed.ok() || !(IsPrivate(parsed->host) || IsLoopback(parsed->host));
  });
}

// The choice of `transport: auto`: the first that both workers have and by which one reaches the
// other, else the first that both have, else TCP.
TransportKind BestTransport(const CandidateWorker& upper, const CandidateWorker& lower) {
  std::optional<TransportKind> first;
  for (const TransportKind kind : ListeningTransports()) {
    if (EndpointOf(upper, kind) == nullptr || EndpointOf(lower, kind) == nullptr) continue;
    if (MayReach(upper, lower, kind) || MayReach(lower, upper, kind)) return kind;
    if (!first) first = kind;
  }
  return first.value_or(TransportKind::kTcp);
}

}  // namespace

bool SealsLinks(const RunSpec& spec, std::span<const std::vector<Endpoint>> endpoints) {
  if (spec.links.encrypt != EncryptKind::kAuto) {
    return spec.links.encrypt == EncryptKind::kRequired;
  }
  return std::ranges::any_of(endpoints, [](const std::vector<Endpoint>& of_worker) {
    return std::ranges::any_of(of_worker, IsPublic);
  });
}

bool SealsLinks(const RunSpec& spec, const std::vector<Cell>& cells) {
  std::vector<std::vector<Endpoint>> endpoints;
  for (const Cell& cell : cells) endpoints.push_back(cell.endpoints);
  return SealsLinks(spec, endpoints);
}

bool HasRelays(const Assignment& assignment) {
  return std::ranges::any_of(assignment.edges,
                             [](const Edge& edge) { return !edge.relays.empty(); });
}

void SealIfRelayed(Assignment* assignment) {
  assignment->sealed |= HasRelays(*assignment);
}

void SetEnds(LinkEnds ends, Edge* edge) {
  edge->transport = std::string(ToString(ends.transport));
  edge->to_dials = ends.downstream_dials;
  edge->relays = std::move(ends.relays);
}

StatusOr<TransportKind> LinkTransport(const RunSpec& spec, const CandidateWorker& upper,
                                      const CandidateWorker& lower, EdgeKind kind) {
  const auto asked = [&](const CandidateWorker& worker) {
    const LinkException* exception = ExceptionOf(spec, worker.name);
    return exception == nullptr ? std::nullopt : exception->transport;
  };
  const std::optional<TransportKind> by_upper = asked(upper), by_lower = asked(lower);
  const bool disagree = by_upper && by_lower && *by_upper != *by_lower;
  if (disagree && kind == EdgeKind::kActivations) {
    return FailedPrecondition(
        "workers {} and {} are neighbours, and links.workers asks for {} at the one and for {} at "
        "the other; a link has one transport",
        upper.name, lower.name, ToString(*by_upper), ToString(*by_lower));
  }
  const std::optional<TransportKind> named = disagree   ? spec.transport
                                             : by_upper ? by_upper
                                             : by_lower ? by_lower
                                                        : spec.transport;
  const TransportKind transport = named ? *named : BestTransport(upper, lower);
  for (const CandidateWorker* worker : {&upper, &lower}) {
    if (EndpointOf(*worker, transport) != nullptr) continue;
    std::string offered;
    for (const Endpoint& endpoint : worker->endpoints) {
      if (!ListensAtAnAddress(endpoint.transport)) continue;  // run files cannot ask for it
      offered += (offered.empty() ? "" : " and ") + endpoint.transport;
    }
    return FailedPrecondition(
        "the link between {} and {}, which {}, is to go over {}, and worker {} has {}; start it "
        "with --transport {}, or change transport in the run file",
        upper.name, lower.name, WhyTheyTalk(kind), ToString(transport), worker->name,
        offered.empty() ? "no data transport" : offered + " only", ToString(transport));
  }
  return transport;
}

StatusOr<LinkEnds> EndsOf(const RunSpec& spec, const CandidateWorker& upper,
                          const CandidateWorker& lower, EdgeKind kind) {
  LH_ASSIGN_OR_RETURN(const TransportKind transport, LinkTransport(spec, upper, lower, kind));
  if (MayReach(lower, upper, transport)) return LinkEnds{transport, true};
  if (MayReach(upper, lower, transport)) return LinkEnds{transport, false};
  // A transport of open networks may get through where this one does not.
  const auto other = std::ranges::find_if(kTransports, [&](const TransportTraits& one) {
    return one.faces_strangers && one.kind != transport &&
           (MayReach(lower, upper, one.kind) || MayReach(upper, lower, one.kind));
  });
  const bool other_works = other != kTransports.end();
  std::vector<Relay> relays = RelaysBetween(upper, lower);
  if (!other_works && !relays.empty()) {
    if (spec.links.encrypt != EncryptKind::kOff) {
      return LinkEnds{TransportKind::kRelay, true, std::move(relays)};
    }
    return FailedPrecondition(
        "workers {} and {} {}, and reach each other through the relay of {} alone, which carries "
        "encrypted links only; links.encrypt is off: leave it out, or set it to required",
        upper.name, lower.name, WhyTheyTalk(kind), relays.front().name);
  }
  if (!HasAddress(upper, transport) && !HasAddress(lower, transport)) {
    return FailedPrecondition(
        "workers {} and {} {}, and neither has an address at which the other could "
        "reach it over {}; start one of them with --advertise host:port, or the "
        "coordinator with --relay",
        upper.name, lower.name, WhyTheyTalk(kind), ToString(transport));
  }
  std::string problems;
  for (const auto& [from, to] : {std::pair(&upper, &lower), std::pair(&lower, &upper)}) {
    const std::string* problem = ProblemOf(*from, *to, transport);
    if (problem != nullptr) problems += (problems.empty() ? "" : "; ") + *problem;
  }
  return FailedPrecondition(
      "workers {} and {} {}, and cannot talk over {}: {}. {}", upper.name, lower.name,
      WhyTheyTalk(kind), ToString(transport), problems,
      other_works
          ? fmt::format(
                "Nothing is known against {0} between them: set `transport: {0}` in the run file",
                other->name)
          : "Open the port of one of them to the other, or start it with --advertise "
            "host:port, an address that the other reaches; or start the coordinator with --relay");
}

StatusOr<Flow> FlowWith(const CodecSpec& spec, const PlanRequest& request, Direction direction) {
  LH_ASSIGN_OR_RETURN(const auto codec, spec.Get());
  return Flow{.codec = CodecSpec(codec),
              .bytes = request.spec.pipeline.SlicesNow() * UsualBytes(request, *codec, direction)};
}

const CodecPair& CodecsOfWorker(const RunSpec& spec, const std::string& worker) {
  const LinkException* exception = ExceptionOf(spec, worker);
  return exception == nullptr ? spec.links.codecs : exception->codecs;
}

StatusOr<Flow> FlowFrom(const PlanRequest& request, const CandidateWorker& sender,
                        Direction direction, std::optional<uint32_t> boundary) {
  const auto of = [direction](const CodecPair& pair) {
    return direction == Direction::kForward ? pair.forward : pair.backward;
  };
  const CodecSpec said = of(CodecsOfWorker(request.spec, sender.name));
  if (!IsAuto(said)) return FlowWith(said, request, direction);
  if (boundary) {
    const size_t boundaries = chain::Boundaries(static_cast<uint32_t>(request.workers.size()));
    const std::vector<CodecPair>* chosen = request.spec.links.ChosenOf(0, boundaries);
    if (chosen != nullptr) return FlowWith(of((*chosen)[*boundary]), request, direction);
  }
  LH_ASSIGN_OR_RETURN(const std::vector<codec::Rung> rungs,
                      CodecsToChooseFrom(request.spec, direction));
  return FlowWith(rungs.back().codec, request, direction);
}

FlowEstimate CodecTimesOf(const CandidateWorker& sender, const CandidateWorker& receiver,
                          const CodecSpec& codec, Direction direction) {
  const auto of = [&](const CandidateWorker& worker) -> FlowEstimate {
    for (const v1::CodecTimes& timed : worker.times.codecs()) {
      if (timed.codec() == ToString(codec)) {
        return {.encode_seconds = timed.encode(), .decode_seconds = timed.decode()};
      }
    }
    return direction == Direction::kForward
               ? FlowEstimate{worker.times.forward_encode(), worker.times.forward_decode()}
               : FlowEstimate{worker.times.backward_encode(), worker.times.backward_decode()};
  };
  return {.encode_seconds = of(sender).encode_seconds,
          .decode_seconds = of(receiver).decode_seconds};
}

// The last stage sends the gradient of every row of the matrix. The first stage sends the rows that
// tokens of the step have read.
Flow TiedFlow(const PlanRequest& request, Direction direction) {
  const RunSpec& spec = request.spec;
  uint64_t rows = spec.model.VocabularyOver(request.data.vocabulary);
  if (direction == Direction::kForward) {
    rows = std::min({rows, spec.TokensOfReplica(), DifferentTokens(spec.TokensOfReplica())});
  }
  return {.codec = "none", .bytes = rows * spec.model.hidden * sizeof(float)};
}

bool MayBeJoined(const RunSpec& spec, const CandidateWorker& upper, const CandidateWorker& lower,
                 EdgeKind kind) {
  return (kind != EdgeKind::kTied || CheckAlike(upper, lower).ok()) &&
         EndsOf(spec, upper, lower, kind).ok();
}

Status AddEdges(const PlanRequest& request, Plan* plan) {
  plan->assignment.edges =
      chain::MakeEdges(/*replicas=*/1, static_cast<uint32_t>(request.workers.size()),
                       request.spec.model.TrainsTiedMatrix());
  plan->edges.clear();
  for (Edge& edge : plan->assignment.edges) {
    const CandidateWorker& upper = request.workers[edge.from.stage];
    const CandidateWorker& lower = request.workers[edge.to.stage];
    if (edge.kind == EdgeKind::kTied) LH_RETURN_IF_ERROR(CheckAlike(upper, lower));
    LH_ASSIGN_OR_RETURN(LinkEnds ends, EndsOf(request.spec, upper, lower, edge.kind));
    SetEnds(std::move(ends), &edge);
    if (edge.kind == EdgeKind::kTied) {
      edge.forward = TiedFlow(request, Direction::kForward);
      edge.backward = TiedFlow(request, Direction::kBackward);
      plan->edges.emplace_back();
      continue;
    }
    const uint32_t boundary = edge.from.stage;
    LH_ASSIGN_OR_RETURN(edge.forward, FlowFrom(request, upper, Direction::kForward, boundary));
    LH_ASSIGN_OR_RETURN(edge.backward, FlowFrom(request, lower, Direction::kBackward, boundary));
    plan->edges.push_back(
        {.forward = CodecTimesOf(upper, lower, edge.forward.codec, Direction::kForward),
         .backward = CodecTimesOf(lower, upper, edge.backward.codec, Direction::kBackward)});
  }
  return absl::OkStatus();
}

Status CheckPredictions(const PlanRequest& request, const Assignment& assignment) {
  for (const Edge& edge : assignment.edges) {
    if (edge.kind != EdgeKind::kActivations) continue;
    if (edge.backward.codec.predicts_by_tokens()) {
      return FailedPrecondition(
          "{} knows activations by their tokens, and cannot send gradients; choose another codec "
          "as links.backward",
          ToString(edge.backward.codec));
    }
    const bool measured = request.spec.replay && !request.spec.replay->real_codecs;
    if (edge.forward.codec.predicts_by_tokens() && measured) {
      return FailedPrecondition(
          "{} cannot be replayed as measured, because its blobs depend on what was sent before; "
          "set replay.codecs to real, or choose another codec",
          ToString(edge.forward.codec));
    }
  }
  return absl::OkStatus();
}

void AddCarriedTokens(const PlanRequest& request, Assignment* assignment) {
  const uint64_t bytes = CarriedBytes(SliceShape(request.spec), request.data.vocabulary) *
                         request.spec.pipeline.SlicesNow();
  for (Edge& edge : assignment->edges) {
    if (CarriesTokens(*assignment, edge)) edge.forward.bytes += bytes;
  }
}

Status AddMessages(const PlanRequest& request, Assignment* assignment) {
  const RunSpec& spec = request.spec;
  const codec::Shape shape = BoundaryShape(spec);
  std::vector<MessageFootprint> footprints(assignment->cells.size());
  std::vector<std::string> codecs(assignment->cells.size());
  for (const Edge& edge : assignment->edges) {
    if (edge.kind != EdgeKind::kActivations) continue;
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      const Flow* const flow = direction == Direction::kForward ? &edge.forward : &edge.backward;
      LH_ASSIGN_OR_RETURN(const auto codec, flow->codec.Get());
      const size_t record_bytes = codec->MessageBytes(shape);
      if (record_bytes == 0) continue;
      if (spec.replay && !spec.replay->real_codecs) {
        return FailedPrecondition(
            "{} cannot be replayed as measured, because its blobs depend on what was sent before; "
            "set replay.codecs to real, or choose another codec",
            codec->name());
      }
      const MessageFootprint one = FootprintOf(spec, Windows(request), record_bytes, direction);
      for (const CellId& cell : {edge.from, edge.to}) {
        const size_t place = assignment->PlaceOf(cell);
        footprints[place] += one;
        codecs[place] = codec->name();
      }
    }
  }
  for (size_t place = 0; place < footprints.size(); ++place) {
    Cell& cell = assignment->cells[place];
    cell.message_record_bytes = footprints[place].records;
    cell.message_journal_bytes = footprints[place].journal;
    LH_RETURN_IF_ERROR(CheckCacheLimit(
        spec, footprints[place],
        fmt::format("{} on worker {}", ToString(cell.id), cell.worker_name), codecs[place]));
  }
  return absl::OkStatus();
}

Status CheckMessageCache(const RunSpec& spec, uint64_t text_bytes) {
  const uint32_t stages = spec.pipeline.stages.value_or(2);
  if (stages < 2 || !spec.links.by_worker.empty() || spec.data.tokenizer != "bytes") {
    return absl::OkStatus();
  }
  // The tokenizer's arithmetic: the end of the text, rounded down.
  const uint64_t training_tokens =
      text_bytes - static_cast<uint64_t>(static_cast<double>(text_bytes) * spec.validation.share);
  const codec::Shape shape = BoundaryShape(spec);
  const uint64_t windows = WindowsOf(training_tokens, spec.model.context);
  MessageFootprint footprint;
  std::string name;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const CodecPair& codecs = spec.links.codecs;
    const CodecSpec* const said =
        direction == Direction::kForward ? &codecs.forward : &codecs.backward;
    if (IsAuto(*said)) continue;  // none with buffers is chosen
    LH_ASSIGN_OR_RETURN(const auto codec, said->Get());
    const size_t record_bytes = codec->MessageBytes(shape);
    if (record_bytes == 0) continue;
    name = codec->name();
    for (uint32_t i = 0; i < chain::MostBoundariesOfAStage(stages); ++i) {
      footprint += FootprintOf(spec, windows, record_bytes, direction);
    }
  }
  return CheckCacheLimit(spec, footprint, stages > 2 ? "a stage in the middle" : "a stage", name);
}

}  // namespace longhaul::coordinator
