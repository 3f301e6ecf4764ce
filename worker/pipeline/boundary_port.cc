#include "worker/pipeline/boundary_port.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/notification.h"
#include "proto/wire/matrix_digest.h"
#include "run/boundary/carried_tokens.h"

namespace longhaul::worker {
namespace {

using SharedCodec = std::shared_ptr<const codec::Codec>;

// `given`, or one in the host's memory; null: without codecs.
std::shared_ptr<BoundaryCodec> RunnerFor(const std::shared_ptr<BoundaryCodec>& given,
                                         const BoundaryPortOptions& options,
                                         const SharedCodec& send, const SharedCodec& receive) {
  if (given || !send) return given;
  const uint32_t vocabulary = options.carried_vocabulary;
  const codec::Shape activation =
      options.upstream ? options.received.value_or(options.shape) : options.shape;
  return BoundaryCodec::Create(
      {.shape = options.shape,
       .received = options.received,
       .send = send,
       .receive = receive,
       .room_bytes = vocabulary > 0 ? CarriedBytes(activation, vocabulary) : 0});
}

}  // namespace

std::shared_ptr<BoundaryPort> BoundaryPort::Create(BoundaryPortOptions options,
                                                   CodecThread* codec_thread,
                                                   std::shared_ptr<EventQueue> events) {
  return std::shared_ptr<BoundaryPort>(
      new BoundaryPort(std::move(options), codec_thread, std::move(events)));
}

BoundaryPort::BoundaryPort(BoundaryPortOptions options, CodecThread* codec_thread,
                           std::shared_ptr<EventQueue> events)
    : EdgePort({.stamp = options.stamp,
                .epoch = options.epoch,
                .edge = options.edge,
                .peer = options.peer,
                .replica = options.peer.replica,
                .sends = options.upstream ? Direction::kBackward : Direction::kForward,
                .credits = options.credits.count(),
                .traffic = options.traffic,
                .on_health = options.on_health},
               std::move(events)),
      options_(std::move(options)),
      codec_thread_(codec_thread),
      credits_(options_.credits),
      assembler_(
          {.direction = receive_direction(),
           .replica = options_.peer.replica,
           .microbatches = options_.microbatches,
           .validation_microbatches = options_.validation_microbatches,
           .sampling_microbatches = options_.sampling_microbatches,
           .slices = options_.slices,
           .shape = ShapeOf(receive_direction()),
           .codec = [this](const Pass& pass) -> const codec::Codec& {
             return ReceiveCodecOf(pass);
           },
           .runner = [this](const Pass& pass) -> BoundaryCodec& { return RunnerOf(pass); },
           .carried = [this](const Pass& pass) { return CarriedWith(pass, receive_direction()); }}),
      codec_(RunnerFor(options_.codec, options_, options_.send_codec, options_.receive_codec)),
      clean_(RunnerFor(options_.clean, options_, options_.clean_codec, options_.clean_codec)),
      messages_(options_.messages) {}

void BoundaryPort::Close(Deadline deadline) {
  EdgePort::Close(deadline);
  if (!options_.messages) return;
  // The next epoch opens stores over the same files, so these must be closed, on the thread that
  // uses them.
  Notification released;
  codec_thread_->Post([&] {
    messages_.reset();
    released.Notify();
  });
  released.Wait();
}

void BoundaryPort::ForgetMessages(Step step) {
  if (options_.messages) options_.messages->Forget(step);
}

wire::TensorHeader BoundaryPort::HeaderFor(wire::TensorKind kind, const Pass& pass) const {
  wire::TensorHeader header = HeaderFor(kind, pass.step);
  header.validation = !pass.trains() && !pass.samples();
  header.clean = pass.kind == PassKind::kCleanValidation;
  header.sampling = pass.samples();
  header.number = pass.number;
  return header;
}

codec::Context BoundaryPort::ContextFor(const Pass& pass, Slice slice, Direction direction,
                                        const std::vector<uint32_t>* ids) {
  codec::Context context;
  context.seed = options_.seed;
  context.step = pass.step;
  context.replica = options_.peer.replica;
  context.edge = options_.edge;
  context.direction = direction;
  // Every slice is rounded by random numbers of its own. Validation follows the training of its
  // step: its microbatches are numbered behind that step's.
  const uint32_t before = pass.trains() ? 0 : options_.microbatches;
  context.microbatch =
      Microbatch((before + slice.microbatch.value()) * options_.slices + slice.index);
  if (messages_) messages_->AddTo(pass, slice.microbatch, direction, &context);
  if (predicts() && direction == Direction::kForward && !IsClean(pass)) {
    if (ids != nullptr) context.token_ids = *ids;
    context.learns = pass.trains();
  }
  return context;
}

codec::Shape BoundaryPort::ShapeOf(Direction direction) const {
  return direction == send_direction() ? options_.shape
                                       : options_.received.value_or(options_.shape);
}

size_t BoundaryPort::CarriedWith(const Pass& pass, Direction direction) const {
  const bool carries =
      options_.carried_vocabulary > 0 && direction == Direction::kForward && !pass.is_clean();
  return carries ? CarriedBytes(ShapeOf(direction), options_.carried_vocabulary) : 0;
}

Status BoundaryPort::Carry(const Pass& pass, const BoundaryTensor& tensor,
                           EncodedBlob* blob) const {
  const size_t bytes = CarriedWith(pass, send_direction());
  if (bytes == 0) return absl::OkStatus();
  const size_t tokens = size_t{options_.shape.samples} * options_.shape.tokens;
  if (!tensor.token_ids || tensor.token_ids->size() != tokens) {
    return Internal("expected the ids of {} tokens with an activation, got {}", tokens,
                    tensor.token_ids ? tensor.token_ids->size() : 0);
  }
  WriteCarried(*tensor.token_ids, options_.carried_vocabulary,
               blob->buffer.bytes.subspan(blob->bytes, bytes));
  blob->bytes += bytes;
  return absl::OkStatus();
}

void BoundaryPort::SendTensor(const Pass& pass, Slice slice, BoundaryTensor tensor) {
  auto outgoing = std::make_shared<Outgoing>();
  outgoing->pass = pass;
  outgoing->slice = slice;
  outgoing->tensor = std::move(tensor);
  // The codec thread encodes in the order of calls. Token tables and message stores of both sides
  // stay equal only in that order.
  codec_thread_->Post([self = shared_from_this(), outgoing] { self->Encode(outgoing); });
}

void BoundaryPort::LetTensorsLeave(uint32_t count) {
  // Posted, because may_leave_ and held_ belong to the codec thread.
  codec_thread_->Post([self = shared_from_this(), count] {
    self->may_leave_ = count;
    std::deque<std::shared_ptr<Outgoing>>& held = self->held_;
    for (; !held.empty() && self->MayLeave(held.front()->slice); held.pop_front()) {
      self->SendChunks(held.front());
    }
  });
}

void BoundaryPort::Encode(const std::shared_ptr<Outgoing>& outgoing) {
  if (options_.messages && !messages_) return;  // closed
  const MonoTime began = Now();
  if (options_.rehearsal && outgoing->pass.trains()) RehearseOn(*outgoing);
  if (options_.dump && options_.dump->Wants(outgoing->pass, outgoing->slice)) {
    options_.dump->Write(outgoing->pass, options_.edge, send_direction(), outgoing->tensor.view);
  }
  StatusOr<EncodedBlob> encoded =
      RunnerOf(outgoing->pass)
          .Encode(outgoing->tensor.view,
                  ContextFor(outgoing->pass, outgoing->slice, send_direction(),
                             outgoing->tensor.token_ids.get()));
  if (encoded.ok()) {
    const Status carried = Carry(outgoing->pass, outgoing->tensor, &*encoded);
    if (!carried.ok()) encoded = carried;
  }
  // Frees the stage's memory before the blob sets out.
  outgoing->tensor = {};
  if (!encoded.ok()) {
    events_->Push(Failed{Annotate(
        encoded.status(), fmt::format("encoding with {}", SendCodecOf(outgoing->pass).name()))});
    return;
  }
  if (messages_) {
    messages_->PrefetchAfter(outgoing->pass, outgoing->slice.microbatch, send_direction());
  }
  outgoing->blob = std::move(encoded->buffer);
  outgoing->blob_bytes = encoded->bytes;
  if (outgoing->pass.trains()) CheckSent(*outgoing);
  Trace(v1::Span::ENCODE, outgoing->pass, outgoing->slice, began);
  if (encoded->nonfinite_tiles > 0) {
    const std::lock_guard lock(mutex_);
    use_.nonfinite_tiles += encoded->nonfinite_tiles;
  }
  if (MayLeave(outgoing->slice)) {
    SendChunks(outgoing);
  } else {
    // It would delay activations, so it waits in encoded form until LetTensorsLeave.
    held_.push_back(outgoing);
  }
}

void BoundaryPort::Trace(v1::Span::Kind kind, const Pass& pass, Slice slice, MonoTime begin,
                         uint64_t bytes) const {
  if (!options_.trace || !pass.trains()) return;
  options_.trace->Add({.kind = kind,
                       .step = pass.step,
                       .slice = slice,
                       .up = options_.upstream,
                       .begin = begin,
                       .end = Now(),
                       .bytes = bytes});
}

void BoundaryPort::SendChunks(const std::shared_ptr<Outgoing>& outgoing) {
  const size_t blob_bytes = outgoing->blob_bytes;
  const size_t chunks = (blob_bytes + kChunkBytes - 1) / kChunkBytes;
  outgoing->headers.resize(chunks);
  std::shared_ptr<transport::Link> link;
  {
    const std::lock_guard lock(mutex_);
    link = link_;
    if (!link || closed_) return;
    if (BeginChunks(blob_bytes, chunks) && options_.turns) options_.turns->Begin();
    outgoing->chunks_under_way = chunks;
  }
  wire::TensorHeader header = HeaderFor(wire::TensorKind::kChunk, outgoing->pass);
  header.microbatch = outgoing->slice.microbatch;
  header.slice = outgoing->slice.index;
  header.slices = options_.slices;
  header.blob_bytes = blob_bytes;
  header.chunks = static_cast<uint32_t>(chunks);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    header.chunk = static_cast<uint32_t>(chunk);
    header.chunk_offset = chunk * kChunkBytes;
    wire::EncodeTensorHeader(header, outgoing->headers[chunk]);
    const auto body = outgoing->blob.bytes.subspan(
        chunk * kChunkBytes, std::min(kChunkBytes, blob_bytes - chunk * kChunkBytes));
    link->Send(transport::Lane::kBulk,
               {.header = outgoing->headers[chunk], .body = body, .continues = chunk + 1 < chunks},
               // A failed send is the link's end; OnClosed says why.
               [self = shared_from_this(), outgoing](const Status&) { self->SendDone(*outgoing); });
  }
}

void BoundaryPort::SendDone(Outgoing& outgoing) {
  const std::lock_guard lock(mutex_);
  // The tied exchange bounds the pieces in flight by these events.
  if (--outgoing.chunks_under_way == 0 && options_.kind == EdgeKind::kTied) {
    events_->Push(PieceTaken{});
  }
  if (EndChunk() && options_.turns) options_.turns->End();
}

void BoundaryPort::SendStepMessage(wire::TensorKind kind, Step step,
                                   const wire::StepMessage& message) {
  DigestWord(/*sent=*/true, step, message);
  std::array<std::byte, wire::kStepMessageBytes> body;
  wire::EncodeStepMessage(message, body);
  SendControl(HeaderFor(kind, step), body);
}

void BoundaryPort::SendSampleRound(Step step, const wire::SampleRound& round) {
  SendControl(HeaderFor(wire::TensorKind::kSampleRound, step), wire::EncodeSampleRound(round));
}

void BoundaryPort::SendSampledTokens(Step step, const wire::SampledTokens& sampled) {
  SendControl(HeaderFor(wire::TensorKind::kSampledTokens, step),
              wire::EncodeSampledTokens(sampled));
}

void BoundaryPort::SendTaken(const Pass& pass, Slice slice) {
  wire::TensorHeader header = HeaderFor(wire::TensorKind::kTaken, pass);
  header.microbatch = slice.microbatch;
  header.slice = slice.index;
  header.slices = options_.slices;
  SendControl(header, {});
}

void BoundaryPort::SendMatrixDigest(Step step, uint64_t digest) {
  std::array<std::byte, wire::kMatrixDigestBytes> body;
  wire::EncodeMatrixDigest(digest, body);
  SendControl(HeaderFor(wire::TensorKind::kMatrixDigest, step), body);
}

PortUse BoundaryPort::TakeUse() {
  const PortUse use = EdgePort::TakeUse();
  if (use.receive_time > absl::ZeroDuration()) {
    const double rate =
        8 * static_cast<double>(use.received_bytes) / absl::ToDoubleSeconds(use.receive_time);
    const std::lock_guard lock(mutex_);
    if (link_ && credits_.OnStep(rate)) link_->GrowCredits(credits_.count());
  }
  return use;
}

Status BoundaryPort::HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                                 std::span<const std::byte> body) {
  if (header.edge != options_.edge || header.direction != receive_direction()) {
    return InvalidArgument("expected edge {} {}, got edge {} {}", options_.edge.value(),
                           options_.upstream ? "forward" : "backward", header.edge.value(),
                           header.direction == Direction::kForward ? "forward" : "backward");
  }
  if (header.kind == wire::TensorKind::kChunk) {
    if (lane != transport::Lane::kBulk) {
      return absl::InvalidArgumentError("expected tensors on the bulk lane");
    }
    return HandleChunk(header, body);
  }
  return HandleMessage(header, body);
}

Status BoundaryPort::HandleMessage(const wire::TensorHeader& header,
                                   std::span<const std::byte> body) {
  if ((header.kind == wire::TensorKind::kMatrixDigest) != (options_.kind == EdgeKind::kTied)) {
    return InvalidArgument("a message of kind {} over an edge of {}", static_cast<int>(header.kind),
                           ToString(options_.kind));
  }
  if (header.kind == wire::TensorKind::kMatrixDigest) {
    LH_ASSIGN_OR_RETURN(const uint64_t digest, wire::DecodeMatrixDigest(body));
    if (options_.recorder) options_.recorder->Add(header, body);
    events_->Push(DigestArrived{header.step, digest});
    return absl::OkStatus();
  }
  if (header.kind == wire::TensorKind::kTaken) return HandleTaken(header, body.size());
  if (header.kind == wire::TensorKind::kMessageState) {
    LH_ASSIGN_OR_RETURN(const wire::MessageState state, wire::DecodeMessageState(body));
    const std::lock_guard lock(mutex_);
    if ((!options_.messages && !predicts()) || peer_state_) {
      return absl::InvalidArgumentError(
          "expected the peer to say what it remembers once, where a codec has state");
    }
    peer_state_ = state;
    if (own_tables_) PostAgreement();
    return absl::OkStatus();
  }
  const bool down =
      header.kind != wire::TensorKind::kNormUp && header.kind != wire::TensorKind::kSampledTokens;
  if (down != options_.upstream) {
    return absl::InvalidArgumentError(
        "expected norms and sampled tokens from downstream, step control and rounds of samples "
        "from upstream, got the opposite");
  }
  if (header.kind == wire::TensorKind::kSampleRound) {
    LH_ASSIGN_OR_RETURN(wire::SampleRound round, wire::DecodeSampleRound(body));
    events_->Push(SampleRoundArrived{header.step, std::move(round)});
    return absl::OkStatus();
  }
  if (header.kind == wire::TensorKind::kSampledTokens) {
    LH_ASSIGN_OR_RETURN(wire::SampledTokens sampled, wire::DecodeSampledTokens(body));
    events_->Push(SampledTokensArrived{header.step, std::move(sampled)});
    return absl::OkStatus();
  }
  LH_ASSIGN_OR_RETURN(const wire::StepMessage message, wire::DecodeStepMessage(body));
  if (options_.recorder) options_.recorder->Add(header, body);
  DigestWord(/*sent=*/false, header.step, message);
  if (down) {
    events_->Push(StepControlArrived{header.step, message, Now()});
  } else {
    events_->Push(NormArrived{header.step, message, Now()});
  }
  return absl::OkStatus();
}

Status BoundaryPort::HandleTaken(const wire::TensorHeader& header, size_t body_bytes) {
  const uint32_t microbatches =
      header.sampling ? options_.sampling_microbatches : options_.validation_microbatches;
  if (options_.upstream || PassOf(header).trains() || body_bytes != 0 ||
      header.microbatch.value() >= microbatches || header.slices != options_.slices) {
    return InvalidArgument(
        "expected from downstream a word about one of {} activations of a validation or of "
        "samples, got one {} about {}, with {} bytes",
        microbatches, options_.upstream ? "from upstream" : "from there", header.microbatch.value(),
        body_bytes);
  }
  events_->Push(ActivationTaken{PassOf(header), SliceOf(header)});
  return absl::OkStatus();
}

Status BoundaryPort::HandleChunk(const wire::TensorHeader& header,
                                 std::span<const std::byte> body) {
  NoteReceiving(true);
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<const EncodedTensor> incoming,
                      assembler_.Take(header, body));
  if (!incoming) return absl::OkStatus();
  NoteReceiving(false);
  Trace(v1::Span::RECEIVE, incoming->pass, incoming->slice, incoming->began, incoming->blob_bytes);
  CountReceived(incoming->blob_bytes, incoming->chunks, incoming->began);
  codec_thread_->Post([self = shared_from_this(), incoming] { self->Decode(*incoming); });
  return absl::OkStatus();
}

void BoundaryPort::Decode(const EncodedTensor& incoming) {
  if (options_.messages && !messages_) return;  // closed
  const MonoTime began = Now();
  if (incoming.pass.trains()) NoteReceived(incoming);
  const size_t carried = CarriedWith(incoming.pass, receive_direction());
  const auto blob = incoming.blob.bytes.first(incoming.blob_bytes - carried);
  StatusOr<BoundaryTensor> tensor =
      RunnerOf(incoming.pass)
          .Decode(blob, ContextFor(incoming.pass, incoming.slice, receive_direction(), nullptr));
  if (tensor.ok() && carried > 0) {
    auto ids = ReadCarried(incoming.blob.bytes.subspan(blob.size(), carried),
                           ShapeOf(receive_direction()), options_.carried_vocabulary);
    if (ids.ok()) {
      tensor->token_ids = std::make_shared<const std::vector<uint32_t>>(*std::move(ids));
    } else {
      tensor = ids.status();
    }
  }
  if (!tensor.ok()) {
    events_->Push(Failed{Annotate(
        tensor.status(), fmt::format("decoding with {}", ReceiveCodecOf(incoming.pass).name()))});
    return;
  }
  if (messages_) {
    messages_->PrefetchAfter(incoming.pass, incoming.slice.microbatch, receive_direction());
  }
  Trace(v1::Span::DECODE, incoming.pass, incoming.slice, began);
  if (options_.plausibility && incoming.pass.trains()) Judge(incoming, *tensor);
  events_->Push(TensorArrived{incoming.pass, incoming.slice, receive_direction(),
                              *std::move(tensor), options_.kind});
}

void BoundaryPort::OnClosed(const Status& reason) {
  EdgePort::OnClosed(reason);
  changed_.notify_all();
}

}  // namespace longhaul::worker
