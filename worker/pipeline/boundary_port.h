// A stage's end of one edge of activations: tensors and step messages over a link, encoded and
// decoded on the stage's codec thread. Of a tied edge, too: its tensors are pieces of a matrix's
// gradient, numbered as microbatches, and instead of step messages there are digests.
//
// Where a codec has state, both sides first agree on what they remember (AgreeOnMessages).
// Send: SendTensor -> codec thread encodes -> chunks go to the link's bulk lane. Over a tied edge
// PieceTaken says when the peer has taken the last one.
// Receive: link loop puts chunks together (tensor_assembler.h) -> when a blob is whole the codec
// thread decodes it -> TensorArrived. Step messages go over the control lane. What
// belongs to another run or epoch is dropped and counted; what makes no sense ends the stage
// (Failed).
//
// Threads: SendTensor, SendStepMessage and LetTensorsLeave from the compute thread; OnFrame and the
// rest of LinkHandler on the link's loop. Lives in a shared_ptr: the link's loop and pending sends
// hold it.
#ifndef LONGHAUL_WORKER_PIPELINE_BOUNDARY_PORT_H_
#define LONGHAUL_WORKER_PIPELINE_BOUNDARY_PORT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
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
  CellId peer;                             // at the other end
  bool upstream = false;  // the peer is above: activations come from there, gradients go there
  uint64_t seed = 0;      // of stochastic rounding
  codec::Shape shape;     // of every boundary tensor: a slice's
  uint32_t microbatches = 1, validation_microbatches = 0;
  uint32_t slices = 1;  // of each microbatch; where a codec knows samples or tokens it is one
  std::shared_ptr<const codec::Codec> send_codec, receive_codec;
  // Runs both codecs on the device that holds the stage's tensors. Null: host memory.
  std::shared_ptr<BoundaryCodec> codec;
  // Of clean validation, both ways, and what runs it. Null: the codecs above lose nothing forward.
  std::shared_ptr<const codec::Codec> clean_codec;
  std::shared_ptr<BoundaryCodec> clean;
  std::shared_ptr<const BoundaryDump> dump;  // of what is sent; or null
  // Where one of them remembers samples.
  std::shared_ptr<BoundaryMessages> messages;
  // Of the model, above the boundary; for the names of tables.
  uint32_t layers_before = 0;
  uint64_t start_step = 0;
  LinkCredits credits{0, absl::ZeroDuration(), 0};
  std::shared_ptr<TraceLog> trace;  // or null
  TrafficWatch* traffic =
      nullptr;  // hears when tensors are on their way; outlives the port; or null
  std::shared_ptr<WireTurns> turns;  // hears when tensors of this side are; or null
  // On the link's loop.
  std::function<void(const LinkHealth&)> on_health;
};

class BoundaryPort : public EdgePort, public std::enable_shared_from_this<BoundaryPort> {
 public:
  // `codec_thread` outlives the link and what is queued on it.
  static std::shared_ptr<BoundaryPort> Create(BoundaryPortOptions options,
                                              CodecThread* codec_thread,
                                              std::shared_ptr<EventQueue> events);
  ~BoundaryPort() override;

  EdgeId edge() const override { return options_.edge; }
  EdgeKind kind() const { return options_.kind; }
  const CellId& peer() const override { return options_.peer; }
  bool upstream() const { return options_.upstream; }
  uint32_t credits() const override { return options_.credits.count(); }

  void Attach(std::shared_ptr<transport::Link> link) override;
  // Whether a codec predicts by tokens: then tensors that are sent need ids.
  bool predicts() const { return codec_ && codec_->predicts(); }
  // Before AgreeOnMessages: what the codec knows of tokens, from a checkpoint, which may have none.
  // On whatever thread, while nothing is sent or comes.
  Status RestoreTables(const std::vector<NamedArray>& arrays);
  // Of a port that predicts, between two steps: after what was sent of the last one. Empty for one
  // that does not.
  StatusOr<std::vector<NamedArray>> SaveTables();

  // Tells the peer what this side remembers and waits for its word; before the first tensor. As
  // BoundaryMessages::Agree: what the two sides do not know alike begins anew. True where there is
  // nothing. `cancelled` is asked now and then.
  StatusOr<bool> AgreeOnMessages(Deadline deadline, const std::function<bool()>& cancelled);
  // When it returns, the codec thread is done with `messages`.
  void Close(Deadline deadline) override;

  void SendTensor(const Pass& pass, Slice slice, BoundaryTensor tensor);
  // From now on the first `count` tensors of a pass leave and others are encoded and kept. Before
  // the first call all leave.
  void LetTensorsLeave(uint32_t count);
  void SendStepMessage(wire::TensorKind kind, Step step, const wire::StepMessage& message);
  // To the stage above: its activation of a validation is used.
  void SendTaken(const Pass& pass, Slice slice);
  // Over a tied edge.
  void SendMatrixDigest(Step step, uint64_t digest);
  // The run will not go back to before `step`. From any thread.
  void ForgetMessages(Step step);

  PortUse TakeUse() override;
  uint64_t frames_received() const override {
    return frames_received_.load(std::memory_order_relaxed);
  }
  uint64_t stale_frames() const { return stale_frames_.load(std::memory_order_relaxed); }

  void OnFrame(transport::Lane lane, std::span<const std::byte> payload) override;
  void OnClosed(const Status& reason) override;

 private:
  std::shared_ptr<transport::Link> link() override;
  struct Outgoing;
  BoundaryPort(BoundaryPortOptions options, CodecThread* codec_thread,
               std::shared_ptr<EventQueue> events);

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
  // Codec thread, but for NewBlob.
  BoundaryCodec& RunnerOf(const Pass& pass) const { return IsClean(pass) ? *clean_ : *codec_; }
  // Codec thread; valid until the next call. `ids`: of what is sent.
  codec::Context ContextFor(const Pass& pass, Slice slice, Direction direction,
                            const std::vector<uint32_t>* ids);
  // Of the codec's tables; 0 where it predicts nothing, or has learned nothing.
  StatusOr<uint64_t> TablesDigest();
  // With mutex_ held, when both sides have said what they remember. The codec thread forgets tables
  // that the peer does not have alike: ahead of the peer's first tensor, which comes behind its
  // word.
  void PostAgreement();
  // Codec thread.
  Status ForgetTables();
  void SendControl(wire::TensorHeader header, std::span<const std::byte> body);
  void Encode(const std::shared_ptr<Outgoing>& outgoing);
  void SendChunks(const std::shared_ptr<Outgoing>& outgoing);
  void SendDone(Outgoing& outgoing);
  // Tensors are on their way, or no more.
  void NoteTraffic(bool begin) const;
  // A tensor comes, or has come. Link's loop.
  void NoteReceiving(bool receiving);
  void CountReceived(const EncodedTensor& incoming);
  Status HandleFrame(transport::Lane lane, std::span<const std::byte> payload);
  Status HandleChunk(const wire::TensorHeader& header, std::span<const std::byte> body);
  Status HandleMessage(const wire::TensorHeader& header, std::span<const std::byte> body);
  Status HandleTaken(const wire::TensorHeader& header, size_t body_bytes);
  void Decode(const EncodedTensor& incoming);
  void Trace(v1::Span::Kind kind, const Pass& pass, Slice slice, MonoTime begin,
             uint64_t bytes = 0) const;
  Direction send_direction() const {
    return options_.upstream ? Direction::kBackward : Direction::kForward;
  }
  Direction receive_direction() const {
    return options_.upstream ? Direction::kForward : Direction::kBackward;
  }

  // Of a slice that is sent.
  bool MayLeave(const Slice& slice) const {
    return SliceOrder(options_.slices).PlaceOf(slice, send_direction()) < may_leave_;
  }

  const BoundaryPortOptions options_;
  const uint64_t run_tag_;
  CodecThread* const codec_thread_;
  const std::shared_ptr<EventQueue> events_;
  std::atomic<uint64_t> frames_received_{0};
  std::atomic<uint64_t> stale_frames_{0};

  std::mutex mutex_;                 // what follows down to last_stats_
  std::condition_variable changed_;  // closed_, agreed_
  std::shared_ptr<transport::Link> link_;
  bool closed_ = false;
  std::optional<wire::MessageState> peer_state_;
  std::optional<uint64_t> own_tables_;  // TablesDigest, as the peer is told
  std::optional<Status> agreed_;        // about tables
  PortUse use_;
  LinkCredits credits_;
  uint64_t chunks_under_way_ = 0;
  MonoTime busy_since_;
  transport::LinkStats last_stats_;

  // Link's loop only.
  TensorAssembler assembler_;
  bool receiving_ = false;
  // Codec thread only.
  const std::shared_ptr<BoundaryCodec> codec_, clean_;  // clean_: or null
  std::shared_ptr<BoundaryMessages> messages_;
  uint32_t may_leave_ = std::numeric_limits<uint32_t>::max();
  std::deque<std::shared_ptr<Outgoing>> held_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_BOUNDARY_PORT_H_
