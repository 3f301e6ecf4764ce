// The common part of all ports: the link, its statistics, and the headers of frames. A port is one
// end of an edge between two cells (a cell is a stage of one replica). An attempt at a run
// ("epoch") opens the links, reports their use, and closes them.
//
// The port drops frames of another assignment. An invalid frame causes the event Failed, which
// ends the stage.
//
// Threads: the On... methods run on the link's loop; any thread may call the other public methods.
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

// A change in the health of the link to the peer.
struct LinkHealth {
  std::string_view state;      // "suspect", "healthy", "lost", "healed": see transport/p2p/link.h
  absl::Duration silence;      // if suspect: how long so far; if healed: how long in total
  Status reason;               // if lost: why
  uint64_t frames_resent = 0;  // if healed
};

// Use of a link since the last call of TakeUse.
struct PortUse {
  uint64_t payload_bytes_sent = 0;  // bytes of messages and of their headers
  uint64_t link_bytes_sent = 0;     // all bytes, with headers and heartbeats of the link
  absl::Duration send_busy;         // time with at least one message in flight to the peer
  absl::Duration credit_wait;       // time in which frames waited because credits had run out
  uint64_t nonfinite_tiles = 0;     // tiles with infinite or NaN values in sent tensors
  // Bytes that arrived, with headers, and the time that they took. Counts only messages of at least
  // five chunks, from the end of the first chunk to the end of the last one. So the bytes divided
  // by the time are the link's rate while messages arrive.
  uint64_t received_bytes = 0;
  absl::Duration receive_time;
};

class EdgePort : public transport::LinkHandler {
 public:
  // Describes this end of the edge.
  struct End {
    Stamp stamp;  // of the assignment that both ends carry out (base/ids.h)
    Epoch epoch;
    EdgeId edge;
    CellId peer;
    uint32_t replica = 0;  // for headers of frames: the replica of this end
    Direction sends = Direction::kForward;
    // Number of frames that the peer may have in flight to this end, when the link opens.
    uint32_t credits = transport::kDefaultCredits;
    // Told when tensors are in flight. It must outlive the port. May be null.
    TrafficWatch* traffic = nullptr;
    // Called on the link's loop; must not block. Null: nobody is told.
    std::function<void(const LinkHealth&)> on_health;
  };

  ~EdgePort() override { NoteReceiving(false); }

  EdgeId edge() const { return end_.edge; }
  const CellId& peer() const { return end_.peer; }
  // Returns the peer's credits when the link opens (End::credits).
  uint32_t credits() const { return end_.credits; }
  // Gives the port its open link, not null. Call it before the first message.
  void Attach(std::shared_ptr<transport::Link> link);
  // Begins to end the link. The link still sends the frames that it has accepted, until `deadline`
  // at most. Does not wait for the link, so callbacks may run after Close has returned. But the
  // event PeerGone is no longer pushed.
  virtual void Close(Deadline deadline);
  // Returns the use of the link since the last call. Call it once a step.
  virtual PortUse TakeUse();
  // Number of frames received so far. It grows while any data arrives, even over a slow link.
  uint64_t frames_received() const { return frames_received_.load(std::memory_order_relaxed); }

  // Returns the statistics of the link; nullopt before Attach. Any thread.
  std::optional<transport::LinkStats> Stats();

  // Checks the frame's header and passes the frame to HandleFrame.
  void OnFrame(transport::Lane lane, std::span<const std::byte> payload) final;
  // The next four methods tell `on_health` about the link. They are called on the link's loop.
  void OnSuspect(absl::Duration silence) override;
  void OnHealthy() override;
  void OnLost(const Status& why) override;
  void OnHealed(absl::Duration away, uint64_t frames_resent) override;
  // Pushes the event PeerGone, unless Close was called before.
  void OnClosed(const Status& reason) override;

 protected:
  EdgePort(End end, std::shared_ptr<EventQueue> events);

  // Handles a frame of this assignment. Called on the link's loop. An error ends the stage.
  virtual Status HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                             std::span<const std::byte> body) = 0;
  Direction send_direction() const { return end_.sends; }
  Direction receive_direction() const {
    return end_.sends == Direction::kForward ? Direction::kBackward : Direction::kForward;
  }
  wire::TensorHeader HeaderFor(wire::TensorKind kind, Step step) const;
  // Sends a message of one frame on the control lane.
  void SendControl(wire::TensorHeader header, std::span<const std::byte> body);
  // Counts a message that is about to be sent. True: no message was in flight before. The caller
  // holds mutex_. Call it before the link gets the first chunk, because its loop may call EndChunk
  // at once.
  bool BeginChunks(uint64_t message_bytes, uint64_t chunks);
  // Counts a chunk that the peer has taken. True: no chunk is in flight any more. The caller holds
  // mutex_.
  bool EndChunk();
  // Records whether a message is arriving, and tells `traffic` if that changed. Called on the
  // link's loop.
  void NoteReceiving(bool receiving);
  // Counts a whole message for PortUse::received_bytes, unless it is too short to tell the line's
  // rate. `began`: when its first chunk arrived. Called on the link's loop.
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
  std::atomic<uint64_t> frames_received_{0};
  // Guarded by mutex_.
  uint64_t chunks_under_way_ = 0;
  MonoTime busy_since_;
  transport::LinkStats last_stats_;
  bool receiving_ = false;  // used on the link's loop only
};

}  // namespace longhaul::worker
