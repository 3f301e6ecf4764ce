// A stage's end of one edge to a neighbour stage. It sends and receives activations, gradients and
// step messages (gradient norms and decisions; proto/wire/step_message.h) over a link. The stage's
// codec thread encodes and decodes. A port also serves a tied edge, which connects the two stages
// that hold copies of a tied matrix. On a tied edge the tensors are pieces of the matrix's
// gradient, numbered like microbatches, and digests of the matrix replace step messages.
//
// If a codec has state, the two sides must first agree on this state (AgreeOnMessages).
// - Sending: SendTensor -> the codec thread encodes -> chunks go to the link's bulk lane. On a tied
//   edge, the event PieceTaken says that the peer has taken the last chunk of a tensor.
// - Receiving: the link's loop assembles chunks (tensor_assembler.h) -> the codec thread decodes
//   the whole blob -> event TensorArrived.
// - Step messages use the link's control lane and are not encoded.
//
// Threads: Send... and LetTensorsLeave on the compute thread; OnFrame and the rest of LinkHandler
// on the link's loop. Messages that are sent before Attach or after Close are dropped. An error in
// a codec causes the event Failed. The port must be in a shared_ptr, because the link's loop and
// pending sends share it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "codec/codec.h"
#include "proto/wire/message_state.h"
#include "proto/wire/sample_messages.h"
#include "proto/wire/step_message.h"
#include "proto/wire/tensor_header.h"
#include "run/plan/plan.h"
#include "transport/p2p/link.h"
#include "worker/pipeline/boundary_codec.h"
#include "worker/pipeline/boundary_dump.h"
#include "worker/pipeline/boundary_messages.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/edge_port.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/input_recorder.h"
#include "worker/pipeline/link_credits.h"
#include "worker/pipeline/message_digests.h"
#include "worker/pipeline/message_keeper.h"
#include "worker/pipeline/plausibility.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/step_digests.h"
#include "worker/pipeline/tensor_assembler.h"
#include "worker/pipeline/trace_log.h"
#include "worker/pipeline/traffic_watch.h"
#include "worker/pipeline/wire_turns.h"

namespace longhaul::worker {

struct BoundaryPortOptions {
  Stamp stamp;  // of the assignment that both ends carry out (base/ids.h)
  Epoch epoch;
  EdgeId edge;
  EdgeKind kind = EdgeKind::kActivations;  // or kTied
  CellId peer;                             // the cell at the other end
  // True: the peer is the stage before, which sends activations and receives gradients.
  bool upstream = false;
  uint64_t seed = 0;  // the run's seed, for stochastic rounding
  // The shape of every tensor: one slice, or one piece of a tied matrix. `received`: of received
  // tensors, if they have another shape.
  codec::Shape shape;
  std::optional<codec::Shape> received = std::nullopt;
  // Number of microbatches in a pass of training and of validation, and the most of a sampling
  // pass; on a tied edge, number of pieces. 0: there are no such passes.
  uint32_t microbatches = 1, validation_microbatches = 0, sampling_microbatches = 0;
  // Number of sequence chunks of each microbatch; 1 if a codec remembers samples.
  uint32_t slices = 1;
  std::shared_ptr<const codec::Codec> send_codec, receive_codec;
  // Runs both codecs on the device that holds the stage's tensors. Null: the port makes one for
  // tensors in host memory.
  std::shared_ptr<BoundaryCodec> codec;
  // The codec of clean passes (Pass::is_clean) for both directions, and its BoundaryCodec. Both are
  // null if activations are not compressed.
  std::shared_ptr<const codec::Codec> clean_codec;
  std::shared_ptr<BoundaryCodec> clean;
  std::shared_ptr<const BoundaryDump> dump;  // writes sent tensors to files; or null
  std::shared_ptr<InputRecorder> recorder;   // gets what arrives in training; or null
  // The state for each training sample; null if no codec has such state.
  std::shared_ptr<BoundaryMessages> messages;
  // Number of token ids, if ids follow the blobs of activations (run/boundary/carried_tokens.h);
  // else 0.
  uint32_t carried_vocabulary = 0;
  // Number of the model's layers before the boundary; part of the names of saved token tables.
  uint32_t layers_before = 0;
  uint64_t start_step = 0;  // steps done before this attempt; 0: the run begins
  LinkCredits credits{0, absl::ZeroDuration(), 0};  // the peer's credits, and how they grow
  std::shared_ptr<TraceLog> trace;                  // or null
  TrafficWatch* traffic = nullptr;                  // as in EdgePort::End
  std::shared_ptr<WireTurns> turns;                 // told when sent tensors are in flight; or null
  std::function<void(const LinkHealth&)> on_health;  // called on the link's loop; or null
  // --- Verification of training messages; null: none (run/file/verify_spec.h).
  std::shared_ptr<MessageDigests> digests;
  std::shared_ptr<MessageKeeper> keeper;
  uint64_t keep_bytes = 0;      // the most that the keeper may hold
  bool tensors_on_host = true;  // false: on a GPU, and buffers of messages are scarce
  std::shared_ptr<Plausibility> plausibility;  // judges received tensors
  std::shared_ptr<Rehearsal> rehearsal;
};

class BoundaryPort : public EdgePort, public std::enable_shared_from_this<BoundaryPort> {
 public:
  // `codec_thread` must outlive the link and its callbacks.
  static std::shared_ptr<BoundaryPort> Create(BoundaryPortOptions options,
                                              CodecThread* codec_thread,
                                              std::shared_ptr<EventQueue> events);

  EdgeKind kind() const { return options_.kind; }
  bool upstream() const { return options_.upstream; }

  // True if activations for SendTensor need their token ids.
  bool wants_tokens() const { return predicts() || options_.carried_vocabulary > 0; }
  // Restores the token tables from the arrays of a checkpoint. Does nothing if `arrays` has none
  // for this boundary. Call it before AgreeOnMessages, on any thread, while no tensor is sent or
  // arrives. Errors: those of TablesFrom (boundary_tables.h) and BoundaryCodec.
  Status RestoreTables(const std::vector<NamedArray>& arrays);
  // Returns the token tables as arrays of a checkpoint; empty if no codec predicts by token. The
  // tables are as all tensors that were sent have left them or, after KeepTables, as they were
  // then. Blocks until the codec thread is done. Errors: those of BoundaryCodec::SaveTables.
  StatusOr<std::vector<NamedArray>> SaveTables();
  // Copies the tables for the next call of SaveTables, as the tensors sent so far leave them. For a
  // step whose end comes after tensors of the next step. Never blocks.
  void KeepTables();

  // Sends the digests of this side's codec state, and blocks until the peer's digests arrive. Both
  // sides clear state that differs. Returns false if a run that continues from a checkpoint now has
  // empty state; returns true at once if no codec has state. Call it before the first tensor.
  // Errors: kCancelled (`cancelled`, which is polled, became true), kUnavailable (the link ended),
  // kDeadlineExceeded, kInvalidArgument (the peer's state fits no codec here).
  StatusOr<bool> AgreeOnMessages(Deadline deadline, const std::function<bool()>& cancelled);
  // Begins to end the link (EdgePort::Close). If there are `messages`, blocks until the codec
  // thread has released them, so that the next attempt can open the same files.
  void Close(Deadline deadline) override;

  // Encodes and sends a tensor, in the order of calls. Never blocks. Keeps `tensor` until it is
  // encoded.
  void SendTensor(const Pass& pass, Slice slice, BoundaryTensor tensor);
  // From now on sends only the first `count` tensors of each pass. Encodes the others too, and
  // keeps them until a later call allows them. Before the first call all tensors are sent.
  void LetTensorsLeave(uint32_t count);
  // `kind`: kNormUp to the previous stage, kStepControl to the next stage.
  void SendStepMessage(wire::TensorKind kind, Step step, const wire::StepMessage& message);
  // To the next and to the previous stage.
  void SendSampleRound(Step step, const wire::SampleRound& round);
  void SendSampledTokens(Step step, const wire::SampledTokens& sampled);
  // Tells the previous stage that this stage has used its activation of a forward-only pass.
  void SendTaken(const Pass& pass, Slice slice);
  // Sends the digest of the tied matrix. For tied edges only.
  void SendMatrixDigest(Step step, uint64_t digest);
  // Deletes the undo journals of `messages` that serve only to roll back to steps before `step`.
  // Any thread.
  void ForgetMessages(Step step);

  // Returns the digests of the training messages of `step` in both directions, and forgets them.
  // Empty without BoundaryPortOptions::digests.
  std::vector<v1::EdgeDigests> TakeDigests(Step step);

  // Also gives the peer more credits if tensors arrived faster than planned (link_credits.h).
  PortUse TakeUse() override;
  void OnClosed(const Status& reason) override;

 private:
  using HeaderBytes = std::array<std::byte, wire::kTensorHeaderBytes>;
  // A tensor from SendTensor until the peer has taken its last chunk.
  struct Outgoing {
    Pass pass;
    Slice slice;
    BoundaryTensor tensor;  // until it is encoded
    BlobBuffer blob;
    size_t blob_bytes = 0;
    std::vector<HeaderBytes> headers;
    size_t chunks_under_way = 0;  // under the port's mutex
  };
  BoundaryPort(BoundaryPortOptions options, CodecThread* codec_thread,
               std::shared_ptr<EventQueue> events);

  // True if a codec predicts by token.
  bool predicts() const { return codec_ && codec_->predicts(); }
  // The shape of the tensors that go this way.
  codec::Shape ShapeOf(Direction direction) const;
  // Bytes of token ids behind the blob of an activation.
  size_t CarriedWith(const Pass& pass, Direction direction) const;
  Status Carry(const Pass& pass, const BoundaryTensor& tensor, EncodedBlob* blob) const;
  using EdgePort::HeaderFor;
  wire::TensorHeader HeaderFor(wire::TensorKind kind, const Pass& pass) const;
  bool IsClean(const Pass& pass) const { return options_.clean_codec && pass.is_clean(); }
  const codec::Codec& SendCodecOf(const Pass& pass) const {
    return IsClean(pass) ? *options_.clean_codec : *options_.send_codec;
  }
  const codec::Codec& ReceiveCodecOf(const Pass& pass) const {
    return IsClean(pass) ? *options_.clean_codec : *options_.receive_codec;
  }
  // Returns the BoundaryCodec of a pass. Only NewBlob may be called outside the codec thread.
  BoundaryCodec& RunnerOf(const Pass& pass) const { return IsClean(pass) ? *clean_ : *codec_; }
  // Called on the codec thread; the result is valid until the next call. `ids`: token ids of the
  // sent tensor; or null.
  codec::Context ContextFor(const Pass& pass, Slice slice, Direction direction,
                            const std::vector<uint32_t>* ids);
  // Returns the digest of the token tables; 0 if no codec predicts by token, or has learned
  // nothing.
  StatusOr<uint64_t> TablesDigest();
  // Lets the codec thread clear token tables that differ from the peer's, before it decodes a
  // tensor of the peer. Called when both sides have told their state; the caller holds mutex_.
  void PostAgreement();
  // Called on the codec thread.
  Status ForgetTables();
  void Encode(const std::shared_ptr<Outgoing>& outgoing);
  // Called on the codec thread, for messages of training: digests, evidence (boundary_checks.cc).
  void RehearseOn(const Outgoing& outgoing);
  void CheckSent(const Outgoing& outgoing);
  void CheckReceived(const EncodedTensor& incoming);
  // The digest of a norm or decision. Left out are people's wishes (stop, samples), which no audit
  // computes again.
  void DigestWord(bool sent, Step step, wire::StepMessage message) const;
  // Digests, keeps and records a received tensor.
  void NoteReceived(const EncodedTensor& incoming);
  void Keep(bool sent, Step step, Slice slice, std::span<const std::byte> bytes,
            std::shared_ptr<const void> owner) const;
  void Judge(const EncodedTensor& incoming, const BoundaryTensor& tensor);
  void SendChunks(const std::shared_ptr<Outgoing>& outgoing);
  void SendDone(Outgoing& outgoing);
  Status HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                     std::span<const std::byte> body) override;
  Status HandleChunk(const wire::TensorHeader& header, std::span<const std::byte> body);
  Status HandleMessage(const wire::TensorHeader& header, std::span<const std::byte> body);
  Status HandleTaken(const wire::TensorHeader& header, size_t body_bytes);
  void Decode(const EncodedTensor& incoming);
  void Record(const EncodedTensor& incoming) const;
  void Trace(v1::Span::Kind kind, const Pass& pass, Slice slice, MonoTime begin,
             uint64_t bytes = 0) const;
  // Returns true if the slice is among the first may_leave_ slices of its pass.
  bool MayLeave(const Slice& slice) const {
    return SliceOrder(options_.slices).PlaceOf(slice, send_direction()) < may_leave_;
  }

  const BoundaryPortOptions options_;
  CodecThread* const codec_thread_;

  std::condition_variable changed_;  // closed_, agreed_
  // Guarded by mutex_.
  std::optional<wire::MessageState> peer_state_;
  std::optional<uint64_t> own_tables_;  // TablesDigest, as sent to the peer
  std::optional<Status> agreed_;        // about tables
  LinkCredits credits_;

  TensorAssembler assembler_;  // used on the link's loop only
  // Used on the codec thread only.
  const std::shared_ptr<BoundaryCodec> codec_, clean_;  // clean_: or null
  std::shared_ptr<BoundaryMessages> messages_;
  std::optional<StatusOr<codec::predict::Tables>> kept_tables_;
  uint32_t may_leave_ = std::numeric_limits<uint32_t>::max();
  std::deque<std::shared_ptr<Outgoing>> held_;
};

}  // namespace longhaul::worker
