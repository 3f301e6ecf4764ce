// A stage's end of one edge of activations: sends and receives tensors and step messages over a
// link. The stage's codec thread encodes and decodes. A port also serves a tied edge, whose tensors
// are pieces of a matrix's gradient, numbered as microbatches; there digests replace step messages.
//
// If a codec has state, both sides first agree on that state (AgreeOnMessages).
// - Send: SendTensor -> the codec thread encodes -> chunks go to the link's bulk lane. On a tied
//   edge, PieceTaken says when the peer has taken the last chunk.
// - Receive: the link's loop assembles chunks (tensor_assembler.h) -> the codec thread decodes a
//   whole blob -> TensorArrived. Step messages use the control lane.
//
// Threads: SendTensor, SendStepMessage and LetTensorsLeave on the compute thread; OnFrame and the
// rest of LinkHandler on the link's loop. A shared_ptr holds the port, because the link's loop and
// pending sends keep it alive.
#pragma once

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
#include "worker/pipeline/link_credits.h"
#include "worker/pipeline/tensor_assembler.h"
#include "worker/pipeline/trace_log.h"
#include "worker/pipeline/traffic_watch.h"
#include "worker/pipeline/wire_turns.h"

namespace longhaul::worker {

struct BoundaryPortOptions {
  RunId run;
  Epoch epoch;
  EdgeId edge;
  EdgeKind kind = EdgeKind::kActivations;  // or kTied
  CellId peer;                             // the cell at the other end
  // the peer is the stage before: it sends activations, and receives gradients
  bool upstream = false;
  uint64_t seed = 0;   // for stochastic rounding
  codec::Shape shape;  // of every boundary tensor, which is one slice
  uint32_t microbatches = 1, validation_microbatches = 0;
  uint32_t slices = 1;  // sequence chunks of each microbatch; 1 if a codec knows samples or tokens
  std::shared_ptr<const codec::Codec> send_codec, receive_codec;
  // Runs both codecs on the device that holds the stage's tensors. Null: host memory.
  std::shared_ptr<BoundaryCodec> codec;
  // The codec of clean validation in both directions, and its BoundaryCodec. Null: activations are
  // not compressed.
  std::shared_ptr<const codec::Codec> clean_codec;
  std::shared_ptr<BoundaryCodec> clean;
  std::shared_ptr<const BoundaryDump> dump;  // writes sent tensors to files; or null
  // Set if a codec has state for each sample.
  std::shared_ptr<BoundaryMessages> messages;
  // The model's layers before the boundary; names of tables contain it.
  uint32_t layers_before = 0;
  uint64_t start_step = 0;
  LinkCredits credits{0, absl::ZeroDuration(), 0};
  std::shared_ptr<TraceLog> trace;   // or null
  TrafficWatch* traffic = nullptr;   // EdgePort::End
  std::shared_ptr<WireTurns> turns;  // learns when sent tensors are in flight; or null
  std::function<void(const LinkHealth&)> on_health;  // EdgePort::End
};

class BoundaryPort : public EdgePort, public std::enable_shared_from_this<BoundaryPort> {
 public:
  // `codec_thread` outlives the link and everything queued on it.
  static std::shared_ptr<BoundaryPort> Create(BoundaryPortOptions options,
                                              CodecThread* codec_thread,
                                              std::shared_ptr<EventQueue> events);

  EdgeKind kind() const { return options_.kind; }
  bool upstream() const { return options_.upstream; }

  // Whether a codec predicts by token: then SendTensor needs tensors with ids.
  bool predicts() const { return codec_ && codec_->predicts(); }
  // Restores the token tables from a checkpoint, which may have none. Call it before
  // AgreeOnMessages, on any thread, while no tensor is sent or arrives.
  Status RestoreTables(const std::vector<NamedArray>& arrays);
  // Copies the token tables between two steps, after all tensors of the last step were sent. Empty
  // if no codec predicts.
  StatusOr<std::vector<NamedArray>> SaveTables();

  // Tells the peer this side's state and waits for its answer, before the first tensor. State that
  // differs starts empty (BoundaryMessages::Agree). True if there is nothing to agree on. Polls
  // `cancelled` while it waits.
  StatusOr<bool> AgreeOnMessages(Deadline deadline, const std::function<bool()>& cancelled);
  // After it returns, the codec thread no longer uses `messages`.
  void Close(Deadline deadline) override;

  void SendTensor(const Pass& pass, Slice slice, BoundaryTensor tensor);
  // Lets only the first `count` tensors of a pass leave from now on; later ones are encoded and
  // kept. All leave before the first call.
  void LetTensorsLeave(uint32_t count);
  void SendStepMessage(wire::TensorKind kind, Step step, const wire::StepMessage& message);
  // Tells the stage before that its activation of a validation has been used.
  void SendTaken(const Pass& pass, Slice slice);
  // For tied edges only.
  void SendMatrixDigest(Step step, uint64_t digest);
  // Drops journals that are needed only to return to a step before `step`. Any thread.
  void ForgetMessages(Step step);

  PortUse TakeUse() override;
  void OnClosed(const Status& reason) override;

 private:
  struct Outgoing;
  BoundaryPort(BoundaryPortOptions options, CodecThread* codec_thread,
               std::shared_ptr<EventQueue> events);

  using EdgePort::HeaderFor;
  wire::TensorHeader HeaderFor(wire::TensorKind kind, const Pass& pass) const;
  bool IsClean(const Pass& pass) const {
    return options_.clean_codec && pass.kind == PassKind::kCleanValidation;
  }
  const codec::Codec& SendCodecOf(const Pass& pass) const {
    return IsClean(pass) ? *options_.clean_codec : *options_.send_codec;
  }
  const codec::Codec& ReceiveCodecOf(const Pass& pass) const {
    return IsClean(pass) ? *options_.clean_codec : *options_.receive_codec;
  }
  // Called on the codec thread, except by NewBlob.
  BoundaryCodec& RunnerOf(const Pass& pass) const { return IsClean(pass) ? *clean_ : *codec_; }
  // Called on the codec thread; the result is valid until the next call. `ids`: those of the sent
  // tensor.
  codec::Context ContextFor(const Pass& pass, Slice slice, Direction direction,
                            const std::vector<uint32_t>* ids);
  // Digest of the codec's token tables; 0 if it does not predict, or has learned nothing.
  StatusOr<uint64_t> TablesDigest();
  // Called when both sides have told their state; the caller holds mutex_. The codec thread forgets
  // tables that differ from the peer's. It does so before the peer's first tensor, which follows
  // the peer's state.
  void PostAgreement();
  // Called on the codec thread.
  Status ForgetTables();
  void Encode(const std::shared_ptr<Outgoing>& outgoing);
  void SendChunks(const std::shared_ptr<Outgoing>& outgoing);
  void SendDone(Outgoing& outgoing);
  Status HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                     std::span<const std::byte> body) override;
  Status HandleChunk(const wire::TensorHeader& header, std::span<const std::byte> body);
  Status HandleMessage(const wire::TensorHeader& header, std::span<const std::byte> body);
  Status HandleTaken(const wire::TensorHeader& header, size_t body_bytes);
  void Decode(const EncodedTensor& incoming);
  void Trace(v1::Span::Kind kind, const Pass& pass, Slice slice, MonoTime begin,
             uint64_t bytes = 0) const;
  // Whether the slice is among the first may_leave_ of the pass.
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
  uint32_t may_leave_ = std::numeric_limits<uint32_t>::max();
  std::deque<std::shared_ptr<Outgoing>> held_;
};

}  // namespace longhaul::worker
