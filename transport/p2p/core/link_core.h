// One open link, over two channels of any backend.
//
// States: open -> closing (goodbyes under way) -> ending (channels being dropped) -> closed. The
// handler hears OnClosed in the last one, when both channels have given all `done`s back.
//
//   from     on                                          to
//   open     Close, ~Link                                closing (kCancelled)
//   open     the peer's goodbyes on both lanes           closing (kUnavailable)
//   closing  the peer's goodbyes on both lanes           ending, if the close began here
//   closing  the deadline                                ending
//   open, closing   a channel is gone, a bad frame, the peer silent for peer_timeout   ending
//   ending   both channels closed                        closed
//
// Frames of a lane go over its channel, but credits of the bulk lane travel on the control channel:
// behind the other direction's tensors they would arrive a window late.
//
// Threads: the first group of methods from any thread, the rest on the loop (asserted).
#ifndef LONGHAUL_TRANSPORT_P2P_CORE_LINK_CORE_H_
#define LONGHAUL_TRANSPORT_P2P_CORE_LINK_CORE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "proto/wire/link_header.h"
#include "transport/p2p/core/channel.h"
#include "transport/p2p/core/event_loop.h"
#include "transport/p2p/core/flow.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

inline constexpr size_t kLanes = 2;
// How long the peer's side of an orderly end may take when nobody waits for it.
inline constexpr absl::Duration kLinkLinger = absl::Milliseconds(200);

class LinkCore : public std::enable_shared_from_this<LinkCore> {
 public:
  struct Init {
    LinkKey key;
    uint64_t link_id = 0;
    uint16_t version = wire::kLinkVersionMax;
    std::string backend;
    LinkOptions options;
    std::shared_ptr<LinkHandler> handler;
    std::array<std::shared_ptr<Channel>, kLanes> channels;
    uint32_t peer_credits = 0;  // granted in the handshake
    // False on the listening side: it sends nothing before the dialler has shown that it has the
    // link too.
    bool peer_is_open = false;
    std::function<void(LinkCore*)> on_gone;  // after OnClosed
  };
  LinkCore(std::shared_ptr<EventLoop> loop, Init init);

  void Send(Lane lane, const FrameView& frame, Link::SendDone done);
  // `drop_waiting`: does not send what waits; also hurries a Close that is under way.
  void Close(Deadline deadline, bool drop_waiting);
  LinkStats stats() const;
  const LinkKey& key() const { return init_.key; }
  const std::string& description() const { return description_; }

  // Takes over the channels' events and starts heartbeats.
  void StartOnLoop();

 private:
  // Queues the frame; what it returns otherwise goes to `done`, which then is untouched.
  Status Accept(Lane l, const FrameView& frame, Link::SendDone* done);

  enum class State { kOpen, kClosing, kEnding, kClosed };
  struct Waiting {
    FrameView frame;
    Link::SendDone done;
  };
  struct Operation {
    std::array<std::byte, wire::kLinkHeaderBytes> header;
    Link::SendDone done;
  };
  struct Submitted {
    Lane lane;
    Waiting waiting;
  };
  class LaneEvents;
  struct LaneState {
    LaneState(uint64_t limit, uint32_t credits) : send(limit), receive(credits) {}
    SendWindow send;
    ReceiveWindow receive;
    std::deque<Waiting> queue;
    bool goodbye_sent = false;
    bool goodbye_received = false;
    bool channel_closed = false;
  };

  LaneState& lane(Lane l) { return lanes_[static_cast<size_t>(l)]; }
  Channel& channel(Lane l) { return *init_.channels[static_cast<size_t>(l)]; }

  void DrainSubmittedOnLoop();
  void CloseOnLoop(Deadline deadline, bool drop_waiting);
  void PumpOnLoop();
  void PumpLane(Lane l);
  void SendData(Lane l, Waiting waiting);
  // Frames of the link itself: heartbeat, credits, goodbye. `about` is the lane that it speaks of.
  void SendOwn(wire::LinkKind kind, Lane over, Lane about, Link::SendDone done);
  void Transmit(Lane over, const wire::LinkHeader& header, const FrameView& payload,
                Link::SendDone done);
  void TellCredits();

  void OnMessage(Lane over, std::span<const std::byte> header, std::span<const std::byte> payload);
  Status HandleFrame(Lane over, const wire::LinkHeader& header, std::span<const std::byte> payload);
  Status HandleData(Lane l, const wire::LinkHeader& header, std::span<const std::byte> payload);
  void HandleGoodbye(Lane over);
  void OnChannelClosed(Lane l, const Status& reason);
  void Heard();

  void ArmTick();
  void Tick();
  void DropQueues(const Status& reason);
  // Leaves kOpen; what ends it from here on.
  void StartClosing(const Status& reason, MonoTime limit);
  void ArmCloseTimer(MonoTime time);
  void End(const Status& reason);
  void FinishIfClosed();
  void TrackCreditWait();

  const std::shared_ptr<EventLoop> loop_;
  Init init_;
  std::string description_;

  // On the loop.
  State state_ = State::kOpen;
  Status reason_;
  bool closed_here_ = false;
  std::array<LaneState, kLanes> lanes_;
  PeerWatch watch_;
  bool heartbeat_under_way_ = false;
  bool credits_under_way_ = false;
  MonoTime tick_due_;
  std::optional<EventLoop::TimerId> tick_timer_;
  std::optional<EventLoop::TimerId> close_timer_;
  std::optional<MonoTime> credit_wait_since_;

  mutable std::mutex mutex_;  // all below
  std::vector<Submitted> submitted_;
  // Why Send refuses, once it does.
  Status refuse_sends_;
  LinkStats stats_;
};

}  // namespace longhaul::transport::internal

#endif  // LONGHAUL_TRANSPORT_P2P_CORE_LINK_CORE_H_
