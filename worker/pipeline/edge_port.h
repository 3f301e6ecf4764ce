// The common part of all edges' ends: the link, its statistics, and the headers of frames. An
// attempt at a run ("epoch") opens the links, reports their use, and closes them.
//
// Drops frames of another run or attempt. An invalid frame ends the stage (Failed).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "proto/wire/tensor_header.h"
#include "run/plan/plan.h"
#include "transport/p2p/link.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/traffic_watch.h"

namespace longhaul::worker {

// A change in the health of the peer's link.
struct LinkHealth {
  std::string_view state;      // "suspect", "healthy", "lost", "healed": see transport/p2p/link.h
  absl::Duration silence;      // suspect: so far; healed: in total
  Status reason;               // lost: why
  uint64_t frames_resent = 0;  // healed
};

// Use of the link since the last call of TakeUse.
struct PortUse {
  uint64_t payload_bytes_sent = 0;  // message bytes with headers
  uint64_t link_bytes_sent = 0;
  absl::Duration send_busy;  // time with at least one message in flight to the peer
  absl::Duration credit_wait;
  uint64_t nonfinite_tiles = 0;  // counted by the encoder
  // Bytes with headers of messages of at least five chunks, without each message's first chunk, and
  // the time from each first chunk to the last one. Their quotient is the link's rate while
  // messages arrive.
  uint64_t received_bytes = 0;
  absl::Duration receive_time;
};

class EdgePort : public transport::LinkHandler {
 public:
  struct End {
    RunId run;
    Epoch epoch;
    EdgeId edge;
    CellId peer;
    uint32_t replica = 0;  // replica of this end
    Direction sends = Direction::kForward;
    uint32_t credits = transport::kDefaultCredits;  // given to the peer when the link opens
    // Learns when tensors are in flight. It outlives the port. May be null.
    TrafficWatch* traffic = nullptr;
    std::function<void(const LinkHealth&)> on_health;  // called on the link's loop; or null
  };

  ~EdgePort() override { NoteReceiving(false); }

  EdgeId edge() const { return end_.edge; }
  const CellId& peer() const { return end_.peer; }
  // Credits given to the peer when the port's link opens.
  uint32_t credits() const { return end_.credits; }
  // Call it before the first message.
  void Attach(std::shared_ptr<transport::Link> link);
  // Flushes and ends the link. After it returns, no callback runs.
  virtual void Close(Deadline deadline);
  // Call it once a step.
  virtual PortUse TakeUse();
  // Frames received so far. Grows while any data arrives, even over a slow link.
  uint64_t frames_received() const { return frames_received_.load(std::memory_order_relaxed); }

  // Statistics of the link; nullopt before Attach. Any thread.
  std::optional<transport::LinkStats> Stats();

  void OnFrame(transport::Lane lane, std::span<const std::byte> payload) final;
  // Forward the link's health to `on_health`; called on the link's loop.
  void OnSuspect(absl::Duration silence) override;
  void OnHealthy() override;
  void OnLost(const Status& why) override;
  void OnHealed(absl::Duration away, uint64_t frames_resent) override;
  // Pushes PeerGone, unless Close was called before.
  void OnClosed(const Status& reason) override;

 protected:
  EdgePort(End end, std::shared_ptr<EventQueue> events);

  // Takes a frame of this attempt, on the link's loop.
  virtual Status HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                             std::span<const std::byte> body) = 0;
  Direction send_direction() const { return end_.sends; }
  Direction receive_direction() const {
    return end_.sends == Direction::kForward ? Direction::kBackward : Direction::kForward;
  }
  wire::TensorHeader HeaderFor(wire::TensorKind kind, Step step) const;
  // Sends a message of one frame on the control lane.
  void SendControl(wire::TensorHeader header, std::span<const std::byte> body);
  // Counts a message whose sending begins. True: no message was in flight. The caller holds mutex_,
  // and calls it before the first chunk is given to the link, because the link's loop may call
  // EndChunk at once.
  bool BeginChunks(uint64_t message_bytes, uint64_t chunks);
  // Counts a chunk that the peer took. True: no chunk is in flight any more. The caller holds
  // mutex_.
  bool EndChunk();
  // Records whether a message is arriving, and tells `traffic` if that changed. Called on the
  // link's loop.
  void NoteReceiving(bool receiving);
  // Counts a whole message of `chunks` chunks, whose first arrived at `began`. Ignores messages too
  // short to tell the line's rate. Called on the link's loop.
  void CountReceived(uint64_t message_bytes, uint32_t chunks, MonoTime began);

  const std::shared_ptr<EventQueue> events_;
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<transport::Link> link_;
  bool closed_ = false;
  PortUse use_;

 private:
  void Say(const LinkHealth& health) const;
  void NoteTraffic(bool begin) const;
  std::shared_ptr<transport::Link> link();

  const End end_;
  const uint64_t run_tag_;
  std::atomic<uint64_t> frames_received_{0};
  // Guarded by mutex_.
  uint64_t chunks_under_way_ = 0;
  MonoTime busy_since_;
  transport::LinkStats last_stats_;
  bool receiving_ = false;  // used on the link's loop only
};

}  // namespace longhaul::worker
