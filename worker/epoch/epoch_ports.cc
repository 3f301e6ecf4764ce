#include "worker/epoch/epoch_ports.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "codec/python/host.h"
#include "run/boundary/boundary_shape.h"
#include "run/boundary/carried_tokens.h"
#include "run/tokens/token_file.h"
#include "worker/pipeline/boundary_messages.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/pipeline/replay_codec.h"
#include "worker/pipeline/tied_exchange.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kLinkLimit = absl::Seconds(30);
// To read message buffers again at the beginning.
constexpr double kMessageBytesPerSecond = 50e6;
// A neighbour agrees on messages when its parameters are there.
constexpr absl::Duration kAgreementLimit = absl::Minutes(40);

// The codec of activations in clean validation.
constexpr char kCleanCodec[] = "none";

using SharedCodec = std::shared_ptr<const codec::Codec>;

// Returns the codec that a port encodes or decodes with: the flow's, or in a replay its stand-in.
StatusOr<SharedCodec> PortCodec(const Resources& resources, const RunSpec& spec,
                                const CodecSpec& of_flow) {
  LH_ASSIGN_OR_RETURN(auto codec, of_flow.Get());
  if (!spec.replay || spec.replay->real_codecs) {
    return codec::python::Ready(resources.python_codecs, std::move(codec));
  }
  const ReplaySpec::CodecTimes* times = spec.replay->TimesOf(of_flow);
  if (times == nullptr) {
    return InvalidArgument("expected replay.codec_times of {}, got none", codec->name());
  }
  ReplaySpec::CodecTimes of_slice = *times;
  of_slice.encode /= spec.pipeline.SlicesNow();
  of_slice.decode /= spec.pipeline.SlicesNow();
  return MakeReplayCodec(std::move(codec), of_slice, SliceShape(spec));
}

bool Compresses(const Edge& edge) {
  return edge.forward.codec.family() != kCleanCodec;
}

// A neighbour begins with its links when it has gone through its message buffers.
absl::Duration OpenLimit(const Assignment& assignment) {
  uint64_t most = 0;
  for (const Cell& cell : assignment.cells) {
    most = std::max(most, cell.message_record_bytes + cell.message_journal_bytes);
  }
  return kLinkLimit + absl::Seconds(static_cast<double>(most) / kMessageBytesPerSecond);
}

Status NoTransport(const Edge& edge, const CellId& cell) {
  return FailedPrecondition(
      "the plan's link to {} is to go over {}, on which this worker does not listen; "
      "start it with --transport {}",
      ToString(edge.PeerOf(cell)), edge.transport, edge.transport);
}

// By value: the link's loop may call it after the epoch has gone.
auto HealthReporter(const Resources& resources, const Assignment& assignment, EdgeId edge) {
  return [send = resources.send, run = assignment.run, epoch = assignment.epoch,
          stamp = assignment.stamp(), edge](const LinkHealth& health) {
    v1::WorkerMessage message;
    message.set_run_id(run.value());
    message.set_epoch(epoch.value());
    message.set_stamp(stamp.value());
    v1::LinkEvent* event = message.mutable_link();
    event->set_edge(edge.value());
    event->set_state(std::string(health.state));
    event->set_silence_seconds(absl::ToDoubleSeconds(health.silence));
    event->set_reason(std::string(Message(health.reason)));
    event->set_frames_resent(health.frames_resent);
    send(std::move(message));
  };
}

// What may be under way between replicas in one direction.
uint32_t CreditsOf(const Flow& flow, absl::Duration round_trip) {
  return LinkCredits(flow.bits_per_second, round_trip, flow.bytes).count();
}

}  // namespace

EpochPorts::EpochPorts(const Resources& resources, const Assignment& assignment, const CellId& cell,
                       EdgeSecrets secrets, EdgeWays ways, std::shared_ptr<EventQueue> events,
                       std::shared_ptr<TraceLog> trace)
    : resources_(resources),
      assignment_(assignment),
      cell_(cell),
      secrets_(std::move(secrets)),
      ways_(std::move(ways)),
      events_(std::move(events)),
      trace_(std::move(trace)) {}

EdgeSecrets EdgeSecretsOf(const v1::Assign& assign) {
  EdgeSecrets secrets;
  for (const auto& [edge, secret] : assign.edge_secrets()) secrets.emplace(EdgeId(edge), secret);
  return secrets;
}

EdgeWays EdgeWaysOf(const v1::Assign& assign) {
  EdgeWays ways;
  for (const auto& [edge, of_edge] : assign.edge_ways()) {
    ways[EdgeId(edge)].assign(of_edge.ways().begin(), of_edge.ways().end());
  }
  return ways;
}

Status EpochPorts::CheckSecrets() const {
  for (const Edge& edge : assignment_.edges) {
    if ((edge.from != cell_ && edge.to != cell_) || secrets_.contains(edge.id)) continue;
    return InvalidArgument("expected a secret for each edge of {}, got none for edge {}",
                           ToString(cell_), edge.id.value());
  }
  return absl::OkStatus();
}

transport::Transport* EpochPorts::TransportOf(const Edge& edge) const {
  const auto found = resources_.transports.find(edge.transport);
  return found == resources_.transports.end() ? nullptr : found->second;
}

bool EpochPorts::CompressesActivations() const {
  return std::ranges::any_of(assignment_.edges, [this](const Edge& edge) {
    return edge.kind == EdgeKind::kActivations && edge.from.replica == cell_.replica &&
           Compresses(edge);
  });
}

Status EpochPorts::Begin(const RunSpec& spec, const std::optional<cuda::Device>& gpu,
                         const data::Mixture* mixture) {
  mixture_ = mixture;
  if (spec.audit.share > 0) {
    recorder_ = std::make_shared<InputRecorder>(Step(assignment_.start_step));
  }
  for (const EdgeKind kind : {EdgeKind::kActivations, EdgeKind::kTied, EdgeKind::kReplicas}) {
    LH_RETURN_IF_ERROR(MakePorts(kind, spec, gpu));
  }
  const Deadline deadline = Deadline::After(OpenLimit(assignment_));
  for (const Opening& opening : openings_) BeginToOpen(spec, opening, deadline);
  return absl::OkStatus();
}

Status EpochPorts::MakePorts(EdgeKind kind, const RunSpec& spec,
                             const std::optional<cuda::Device>& gpu) {
  for (const Edge* edge : assignment_.EdgesOf(cell_, kind)) {
    if (TransportOf(*edge) == nullptr) return NoTransport(*edge, cell_);
    std::shared_ptr<EdgePort> port;
    if (kind == EdgeKind::kReplicas) {
      port = replica_ports_.emplace_back(MakeReplicaPort(*edge));
    } else {
      LH_ASSIGN_OR_RETURN(auto boundary, kind == EdgeKind::kTied ? MakeTiedPort(spec, *edge)
                                                                 : MakePort(spec, gpu, *edge));
      port = ports_.emplace_back(std::move(boundary));
    }
    openings_.push_back({.edge = edge, .port = std::move(port)});
  }
  return absl::OkStatus();
}

std::shared_ptr<ReplicaPort> EpochPorts::MakeReplicaPort(const Edge& edge) const {
  const Flow &sent = edge.SentBy(cell_), &received = edge.SentTo(cell_);
  const absl::Duration round_trip = absl::Seconds(sent.latency_seconds + received.latency_seconds);
  return ReplicaPort::Create({.stamp = assignment_.stamp(),
                              .epoch = assignment_.epoch,
                              .edge = edge.id,
                              .own = cell_,
                              .peer = edge.PeerOf(cell_),
                              .credits = CreditsOf(received, round_trip),
                              .most_chunks = CreditsOf(sent, round_trip),
                              .turns = turns_,
                              .traffic = resources_.traffic,
                              .on_health = HealthReporter(resources_, assignment_, edge.id)},
                             events_);
}

uint64_t EpochPorts::frames_received() const {
  uint64_t frames = 0;
  for (const Opening& opening : openings_) frames += opening.port->frames_received();
  return frames;
}

std::vector<LinkReading> EpochPorts::Readings() const {
  std::vector<LinkReading> readings;
  for (const Opening& opening : openings_) {
    const std::optional<transport::LinkStats> stats = opening.port->Stats();
    if (!stats) continue;
    const Edge& edge = *opening.edge;
    const Flow& flow = edge.SentBy(cell_);
    readings.push_back({.edge = edge.id,
                        .kind = edge.kind,
                        .peer = assignment_.Find(edge.PeerOf(cell_))->worker_name,
                        .codec = ToString(flow.codec),
                        .transport = edge.transport,
                        .planned_bits_per_second = flow.bits_per_second,
                        .credits = opening.port->credits(),
                        .stats = *stats});
  }
  return readings;
}

StatusOr<std::shared_ptr<BoundaryPort>> EpochPorts::MakePort(const RunSpec& spec,
                                                             const std::optional<cuda::Device>& gpu,
                                                             const Edge& edge) {
  LH_ASSIGN_OR_RETURN(auto messages, OpenMessages(spec, edge));
  const Flow &sent = edge.SentBy(cell_), &received = edge.SentTo(cell_);
  LH_ASSIGN_OR_RETURN(const SharedCodec send_codec, PortCodec(resources_, spec, sent.codec));
  LH_ASSIGN_OR_RETURN(const SharedCodec receive_codec, PortCodec(resources_, spec, received.codec));
  const uint32_t vocabulary = assignment_.data.vocabulary;
  const bool carries = CarriesTokens(assignment_, edge);
  const bool upstream = edge.to == cell_;
  const codec::Shape activation = SliceShape(spec, Direction::kForward),
                     gradient = SliceShape(spec, Direction::kBackward);
  const codec::Shape sends = upstream ? gradient : activation,
                     receives = upstream ? activation : gradient;
  LH_ASSIGN_OR_RETURN(
      auto codec,
      CreateBoundaryCodec(gpu, {.shape = sends,
                                .received = receives,
                                .send = send_codec,
                                .receive = receive_codec,
                                .vocabulary = vocabulary,
                                .room_bytes = carries ? CarriedBytes(activation, vocabulary) : 0}));
  SharedCodec clean_codec;
  std::shared_ptr<BoundaryCodec> clean;
  if (Compresses(edge) && !spec.replay) {
    LH_ASSIGN_OR_RETURN(clean_codec, CodecSpec(kCleanCodec).Get());
    LH_ASSIGN_OR_RETURN(clean, codec->Sharing(clean_codec));
  }
  BoundaryPortOptions options = OptionsFor(edge, received.bytes / spec.pipeline.SlicesNow());
  options.seed = spec.train.seed;
  options.shape = sends;
  options.received = receives;
  options.microbatches = spec.train.microbatches;
  options.slices = spec.pipeline.SlicesNow();
  options.validation_microbatches =
      ValidationMicrobatches(spec, assignment_.data.validation_tokens);
  options.sampling_microbatches = kMostSamplePrompts;
  options.send_codec = send_codec;
  options.receive_codec = receive_codec;
  options.codec = std::move(codec);
  options.clean_codec = std::move(clean_codec);
  options.clean = std::move(clean);
  if (resources_.dump) {
    options.dump = std::make_shared<const BoundaryDump>(*resources_.dump, assignment_.run);
  }
  options.messages = std::move(messages);
  options.carried_vocabulary = carries ? vocabulary : 0;
  options.layers_before = assignment_.Find(edge.to)->layers.first;
  options.start_step = assignment_.start_step;
  options.trace = trace_;
  if (spec.verify.outliers != Implausible::kOff && resources_.senders) {
    options.plausibility = resources_.senders->Of(assignment_.run, edge.id);
  }
  options.tensors_on_host = !gpu;
  AddVerification(spec, &options);
  return BoundaryPort::Create(std::move(options), resources_.codec_thread, events_);
}

StatusOr<std::shared_ptr<BoundaryPort>> EpochPorts::MakeTiedPort(const RunSpec& spec,
                                                                 const Edge& edge) {
  const TiedPieces pieces =
      PiecesOf(spec.model.VocabularyOver(assignment_.data.vocabulary), spec.model.hidden);
  BoundaryPortOptions options = OptionsFor(edge, pieces.shape.elements() * sizeof(float));
  options.shape = pieces.shape;
  options.microbatches = pieces.pieces;
  LH_ASSIGN_OR_RETURN(options.send_codec, edge.SentBy(cell_).codec.Get());
  LH_ASSIGN_OR_RETURN(options.receive_codec, edge.SentTo(cell_).codec.Get());
  AddVerification(spec, &options);
  return BoundaryPort::Create(std::move(options), resources_.codec_thread, events_);
}

void EpochPorts::AddVerification(const RunSpec& spec, BoundaryPortOptions* options) const {
  options->rehearsal = resources_.rehearsal;
  if (spec.verify.digests == DigestKind::kNone) return;
  options->digests = std::make_shared<MessageDigests>(spec.verify.digests);
  options->keep_bytes = spec.verify.keep_bytes;
  if (options->keep_bytes > 0) options->keeper = resources_.kept_messages;
}

BoundaryPortOptions EpochPorts::OptionsFor(const Edge& edge, uint64_t tensor_bytes) const {
  const Flow &sent = edge.SentBy(cell_), &received = edge.SentTo(cell_);
  return {.stamp = assignment_.stamp(),
          .epoch = assignment_.epoch,
          .edge = edge.id,
          .kind = edge.kind,
          .peer = edge.PeerOf(cell_),
          .upstream = edge.to == cell_,
          .recorder = recorder_,
          .credits = LinkCredits(received.bits_per_second,
                                 absl::Seconds(sent.latency_seconds + received.latency_seconds),
                                 tensor_bytes),
          .traffic = resources_.traffic,
          .turns = turns_,
          .on_health = HealthReporter(resources_, assignment_, edge.id)};
}

StatusOr<std::shared_ptr<BoundaryMessages>> EpochPorts::OpenMessages(const RunSpec& spec,
                                                                     const Edge& edge) {
  LH_ASSIGN_OR_RETURN(const auto forward, edge.forward.codec.Get());
  LH_ASSIGN_OR_RETURN(const auto backward, edge.backward.codec.Get());
  const DataSet& data = assignment_.data;
  return BoundaryMessages::Open(
      {.root = resources_.messages_root,
       .spec = spec,
       .run = assignment_.run,
       .replica = cell_.replica,
       .layers_before = assignment_.Find(edge.to)->layers.first,
       .upstream = edge.to == cell_,
       .mixture = mixture_,
       .windows = WindowsOf(data.tokens - data.validation_tokens, spec.model.context),
       .before = ReadBefore(assignment_, spec),
       .forward = forward.get(),
       .backward = backward.get()});
}

void EpochPorts::BeginToOpen(const RunSpec& spec, const Opening& opening, Deadline deadline) {
  const Edge& edge = *opening.edge;
  const auto done = [answer = opening.answer](StatusOr<std::shared_ptr<transport::Link>> opened) {
    const std::lock_guard lock(answer->mutex);
    answer->link = std::move(opened);
    answer->changed.notify_all();
  };
  const auto ways = ways_.find(edge.id);
  std::vector<std::string> addresses;
  const Endpoint* endpoint = assignment_.Find(edge.PeerOf(cell_))->EndpointOf(edge.transport);
  if (ways != ways_.end()) {
    addresses = ways->second;
  } else if (endpoint != nullptr) {
    addresses = endpoint->addresses;
  }
  const transport::LinkOptions options{.peer_timeout = spec.peer_timeout,
                                       .credits = opening.port->credits(),
                                       .sealed = assignment_.sealed,
                                       .peer_at = addresses};
  const std::string& secret = secrets_.at(edge.id);
  if (edge.dialler() != cell_) {
    TransportOf(edge)->Expect(KeyOf(edge.id), secret, opening.port, options, deadline, done);
    return;
  }
  const std::lock_guard lock(mutex_);  // Readdress comes before or after, not between
  if (const auto moved = moved_.find(edge.id); moved != moved_.end()) addresses = moved->second;
  TransportOf(edge)->Dial(addresses, KeyOf(edge.id), secret, opening.port, options, deadline, done);
}

Status EpochPorts::RestoreTables(const std::vector<NamedArray>& arrays) {
  for (const auto& port : ports_) {
    LH_RETURN_IF_ERROR(Annotate(port->RestoreTables(arrays),
                                fmt::format("tables of the link to {}", ToString(port->peer()))));
  }
  return absl::OkStatus();
}

Status EpochPorts::Await(const std::function<bool()>& cancelled) {
  for (Opening& opening : openings_) {
    Answer& answer = *opening.answer;
    std::unique_lock lock(answer.mutex);
    while (!answer.link) {
      answer.changed.wait_for(lock, std::chrono::milliseconds(100));
      if (!answer.link && cancelled()) return absl::CancelledError("the run was dropped");
    }
    if (!answer.link->ok()) {
      const Cell& peer = *assignment_.Find(opening.edge->PeerOf(cell_));
      return Annotate(answer.link->status(),
                      fmt::format("link to {} on worker {}", ToString(peer.id), peer.worker_name));
    }
    opening.port->Attach(**answer.link);
    opening.open = true;
  }
  const Deadline agreed = Deadline::After(kAgreementLimit);
  for (const auto& port : ports_) {
    const StatusOr<bool> kept = port->AgreeOnMessages(agreed, cancelled);
    if (!kept.ok()) {
      if (absl::IsUnavailable(kept.status())) lost_edge_ = port->edge();
      return Annotate(kept.status(), fmt::format("link to {}", ToString(port->peer())));
    }
    if (!*kept) forgotten_.push_back(port.get());
  }
  return absl::OkStatus();
}

void EpochPorts::Readdress(EdgeId edge, std::vector<std::string> addresses) {
  const Edge* found = assignment_.Find(edge);
  transport::Transport* const transport = found == nullptr ? nullptr : TransportOf(*found);
  if (transport == nullptr) return;
  const std::lock_guard lock(mutex_);
  transport->Readdress(KeyOf(edge), addresses);
  moved_[edge] = std::move(addresses);
}

void EpochPorts::Close(Deadline deadline) {
  for (const Opening& opening : openings_) {
    if (!opening.open) TransportOf(*opening.edge)->Cancel(KeyOf(opening.edge->id));
    opening.port->Close(deadline);
  }
}

}  // namespace longhaul::worker
