// One link over a lane pair, which is two connections of a backend, one for each lane. When the
// connections break, the side that dialled dials again. The link then goes on over a new pair
// without losing or doubling a frame.
//
// A link has a state. Until it ends it also has a lane pair, or none while it is lost.
//
// clang-format off
//   state          on                                                        then
//   open           Close, ~Link                                              closing (kCancelled)
//   open           the peer's goodbyes on both lanes                         closing (kUnavailable)
//   closing        the peer's two goodbyes, and all our frames acknowledged  ending
//   closing        the deadline                                              ending
//   closing        a connection is gone after the peer's goodbyes            ending
//   open, closing  a bad frame, the peer's refusal, a refused redial,
//                  no sign of life of the peer for peer_timeout              ending
//   ending         every connection closed, of all lane pairs                closed
//
//   open, closing  a connection is gone                                      lost; redial
//   open           the bulk connection alone, where the peer dials           lost 200 ms later
//   open, closing  a lane's frames are not acknowledged for peer_timeout     lost; redial
//   open, closing  silence of suspect_after                                  redial, connected or not
//   open, closing  a sign of life on the connection                          stop a redial
//   open, closing  two new connections passed the handshake                  connected by these
// clang-format on
//
// Only the side that dialled redials. The listening side takes a new pair that passes the handshake
// even while its own connections look healthy. It drops the old pair before it reads the first
// frame of the new one. Every event names its pair, so events of an old pair are ignored. On a new
// pair each side first sends again the frames that the other side had not received by the time of
// the handshake (hello.h). A frame that was received meanwhile is recognised by its sequence number
// and dropped.
//
// Frames of a lane go over its connection. Credits of the bulk lane go over the control connection:
// on the bulk connection they would wait behind tensors, and arrive too late.
//
// A link that ends tells this to its peer on the control connection: it acknowledges the peer's
// goodbyes, or sends a refusal with the reason. Otherwise the peer would wait for new connections.
//
// Threads: the first group of methods may be called from any thread, the rest on the loop.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "proto/wire/link_header.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/core/flow.h"
#include "transport/p2p/core/handshake.h"
#include "transport/p2p/core/outbox.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// How long a link that ends waits for the peer's goodbyes if no caller gave a deadline. Also how
// long the last message of a link may take.
inline constexpr absl::Duration kLinkLinger = absl::Milliseconds(200);

class LinkCore : public std::enable_shared_from_this<LinkCore> {
 public:
  // `backend` is the backend's name, for description(). `opened` is the handshake's result.
  // `handler` must not be null; `on_ending` and `on_gone` may be.
  struct Init {
    LinkKey key;
    std::string backend;
    LinkOptions options;
    std::shared_ptr<LinkHandler> handler;
    OpenedLink opened;
    // On the dialling side: options for new connections, dialled by `dial_over`, which must outlive
    // the link. Empty on the listening side.
    std::optional<DialOptions> redial;
    Backend* dial_over = nullptr;
    std::function<void(LinkCore*)> on_ending;  // from now on the link takes no new connections
    std::function<void(LinkCore*)> on_gone;    // runs after the handler's OnClosed
  };
  LinkCore(std::shared_ptr<EventLoop> loop, Init init);

  void Send(Lane lane, const FrameView& frame, Link::SendDone done);
  // Starts the link's end. With `drop_waiting`, also drops frames that were never sent. If the link
  // is closing already: with `drop_waiting` the new deadline counts, else the call does nothing.
  void Close(Deadline deadline, bool drop_waiting);
  void GrowCredits(uint32_t credits);
  LinkStats stats() const;
  const LinkKey& key() const { return init_.key; }
  std::string description() const;

  uint64_t link_id() const { return link_id_; }
  // Takes over the connections' events and starts heartbeats. Call it once.
  void StartOnLoop();
  // Returns the highest sequence that was handled on each lane.
  Received ReceivedOnLoop() const;
  // Goes on over new connections; for both sides.
  void ResumeOnLoop(OpenedLink opened);
  bool dials() const { return init_.redial.has_value(); }
  // Replaces the addresses that the dialling side redials.
  void ReaddressOnLoop(const std::vector<std::string>& addresses);

 private:
  // Two connections, from one handshake to their end.
  struct LanePair {
    std::array<std::shared_ptr<Connection>, kLanes> connections;
    // True once the peer has opened both connections. The listening side sends nothing before.
    bool peer_is_open = false;
    // Frames of each lane that the connection has not sent yet.
    std::array<size_t, kLanes> handed{};
    // The bulk connection has ended, and the control connection may still say why.
    bool bulk_ended = false;
    bool heartbeat_under_way = false;
    std::array<bool, kLanes> credits_under_way{};
  };
  using LanePairPtr = std::shared_ptr<LanePair>;
  class LaneEvents;

  enum class State { kOpen, kClosing, kEnding, kClosed };
  struct Submitted {
    Lane lane;
    FrameView view;
    Link::SendDone done;
  };
  struct LaneState {
    explicit LaneState(uint32_t peer_credits, uint32_t own_credits)
        : out(peer_credits), receive(own_credits) {}
    Outbox out;
    ReceiveWindow receive;
    bool goodbye_received = false;
    // Time when frames were last acknowledged, or sent while none was under way.
    MonoTime progress_at;
    int stalls = 0;  // lane pairs in a row given up for lack of progress
  };

  LaneState& lane(Lane l) { return lanes_[static_cast<size_t>(l)]; }
  wire::LinkGuard guard() const {
    return init_.options.sealed ? wire::LinkGuard::kSeal : wire::LinkGuard::kChecksum;
  }
  bool Over() const { return state_ >= State::kEnding; }
  bool GoodbyesReceived() const;

  // Queues the frame and takes `done`. On an error leaves `done` to the caller, who runs it.
  Status Accept(Lane l, const FrameView& frame, Link::SendDone* done);
  void DrainSubmittedOnLoop();
  void PumpOnLoop();
  // Pumps later: what was received meanwhile goes first.
  void PumpSoon();
  void PumpLane(Lane l);
  void SendHeld(Lane l, const Outbox::FramePtr& frame, bool again);
  // Sends the link's own frames: heartbeat, credits, refusal. `about` is the lane that the frame
  // describes.
  void SendOwn(wire::LinkKind kind, Lane about, std::vector<std::byte> payload,
               std::function<void()> done);
  void Transmit(Lane over, const wire::LinkHeader& header, const FrameView& payload,
                Connection::SendDone done);
  void SendHeartbeat();
  void TellCredits(Lane about);
  // Runs each frame's `done`.
  void Finish(const std::vector<Outbox::FramePtr>& frames, const Status& status);
  void TrackCreditWait();

  // Receiving (link_core.cc).
  void OnMessage(const LanePairPtr& lane_pair, Lane over, std::span<const std::byte> header,
                 std::span<const std::byte> payload);
  Status HandleFrame(Lane over, const wire::LinkHeader& header, std::span<const std::byte> payload);
  Status HandleSequenced(Lane l, const wire::LinkHeader& header,
                         std::span<const std::byte> payload);
  Status CheckAcknowledgement(Lane about, const wire::LinkHeader& header);

  // Connections and the peer's signs of life (link_life.cc).
  void Connect(const OpenedLink& opened, bool dialled);
  void OnConnectionClosed(const LanePairPtr& lane_pair, Lane lane, const Status& reason);
  void CheckProgress(MonoTime now, absl::Duration stalled);
  void DropConnection();
  void Lose(const Status& why);
  void StartRedial();
  void StopRedial();
  void OnRedialled(StatusOr<OpenedLink> opened);
  void Heard();
  void Healed();
  void ArmTick();
  void Tick();
  Status Gone() const;

  // The end (link_life.cc).
  void CloseOnLoop(Deadline deadline, bool drop_waiting);
  void DropWaiting(const Status& reason);
  // Leaves kOpen. From here on the link ends with `reason`, at `limit` at the latest.
  void StartClosing(const Status& reason, MonoTime limit);
  void ArmCloseTimer(MonoTime time);
  void EndIfAllIsSaid();
  // Ends the link with the reason `why`, or with that of an earlier Close. `tell_peer`: the peer
  // does not know yet that the link ends.
  void End(const Status& why, bool tell_peer);
  void SayLastWord();
  void FinishIfClosed();

  const std::shared_ptr<EventLoop> loop_;
  Init init_;
  const uint64_t link_id_;
  const uint16_t version_;
  const absl::Duration attempt_limit_;

  // Used on the loop.
  State state_ = State::kOpen;
  Status reason_;
  std::array<LaneState, kLanes> lanes_;
  LanePairPtr lane_pair_;  // null: lost, or over
  MonoTime connected_at_;
  size_t connections_open_ = 0;  // of all lane pairs
  Status lost_why_;
  // Set from a break until it is healed: when the peer was last heard before the break.
  std::optional<MonoTime> away_since_;
  bool suspect_told_ = false;
  uint32_t attempts_ = 0;
  std::shared_ptr<Dialer> dialer_;
  PeerWatch watch_;
  MonoTime tick_due_;
  std::optional<EventLoop::TimerId> tick_timer_, close_timer_, redial_timer_;
  std::optional<MonoTime> credit_wait_since_;
  bool pump_posted_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<Submitted> submitted_;
  // The reason why Send refuses frames; OK before.
  Status refuse_sends_;
  LinkStats stats_;
  std::string description_;
};

}  // namespace longhaul::transport::internal
