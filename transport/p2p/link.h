// Point-to-point links between neighbouring stages. A link carries frames (messages of up to 64
// KiB) in order, in both directions at once, with checksums and flow control. A link watches its
// peer, and replaces connections that break.
//
//   auto transport = ucx::CreateTransport({.bind_address = "10.77.0.2:0"});
//   (*transport)->Expect(key, secret, handler, options, deadline, done);  // on one side, and
//   // on the other side, with the address of the first:
//   (*transport)->Dial({"10.77.0.2:41234"}, key, secret, handler, options, deadline, done);
//
// A link has two lanes, each with a connection of its own: kBulk for tensors, and kControl for
// small urgent messages, which a full bulk lane never delays. Order holds within a lane, not across
// lanes. A credit is the receiver's permission to send one more frame on a lane.
//
// A link outlives its connections. If they break or fall silent, or if one makes no progress though
// the peer lives, the side that dialled dials again. Until new connections are open, frames wait,
// and the handler is told. The link then continues, with every frame once and in order. The link
// ends if no frame comes from the peer for peer_timeout, or if the peer has ended the link. Each
// side sends at least one frame, a heartbeat, every heartbeat_interval. After Readdress the peer is
// dialled at its new addresses.
//
// Threads: every Transport owns one event-loop thread. All public methods may be called from any
// thread and never block. All callbacks run on the loop, never inside the call that caused them,
// with no lock held; they must not block. A callback may call any method, Close included.
// Ownership: the caller keeps Link and Transport. A Link may outlive its Transport, which ends the
// link. Handlers are shared; after OnClosed a handler is never called again. Handlers and callbacks
// must not be null.
// Errors reach the call's `done` and OnClosed. kUnavailable: the peer was not reached or is gone.
// kInvalidArgument: invalid arguments, or invalid frames from the peer. kDataLoss: a wrong checksum
// or a missing frame. kPermissionDenied: a wrong secret. kFailedPrecondition: only one end asks for
// a sealed link. kUnimplemented: the ends have no common version. kDeadlineExceeded: the link did
// not open in time. kCancelled: closed on this side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace longhaul::transport {

// Largest payload of one frame. The caller cuts larger messages into chunks.
inline constexpr size_t kMaxFramePayloadBytes = size_t{64} * 1024;

enum class Lane : uint8_t { kBulk = 0, kControl = 1 };

// Names a link; both ends use the same key. `stamp` names the assignment of stages that the link
// belongs to. `edge` is the number of a pair of stages that exchange data (base/ids.h). A run id
// has 1 to 256 bytes.
struct LinkKey {
  RunId run;
  Stamp stamp;
  EdgeId edge;
  friend bool operator==(const LinkKey&, const LinkKey&) = default;
  friend auto operator<=>(const LinkKey&, const LinkKey&) = default;
};

// A frame's payload in up to two pieces, `header` and then `body`. The view does not own its bytes.
// The bytes must not change until the send's `done`, because the link may have to send them again.
struct FrameView {
  std::span<const std::byte> header;
  std::span<const std::byte> body;
  // The next frame on this lane continues this frame's message, of which the receiver can use
  // nothing before its last frame. The receiver may then take several frames at once.
  bool continues = false;
  size_t size() const { return header.size() + body.size(); }
};

// Totals of both lanes since the link opened, except `frames_waiting`, which is the present number.
// Frames are those that callers send. Only `link_bytes` also counts the link's own frames, such as
// heartbeats.
struct LinkStats {
  uint64_t frames_sent = 0, frames_received = 0;
  uint64_t payload_bytes_sent = 0, payload_bytes_received = 0;  // caller's bytes
  uint64_t link_bytes_sent = 0, link_bytes_received = 0;        // all frames, with their headers
  uint64_t heartbeats_sent = 0, heartbeats_received = 0;
  uint64_t reconnects = 0;         // how often new connections replaced old ones
  uint64_t frames_resent = 0;      // sent again on a new connection; not in frames_sent
  uint64_t frames_repeated = 0;    // received again and dropped; not in frames_received
  uint64_t frames_waiting = 0;     // accepted by Send, not yet acknowledged by the peer
  absl::Duration longest_silence;  // between two frames from the peer, of any kind
  absl::Duration credit_wait;      // bulk lane: time with a connection, frames and no credit
};

class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // Called for each whole frame, in order. `payload` is valid during the call only: copy it and
  // return. The frame's credit goes back to the peer only when OnFrame returns.
  virtual void OnFrame(Lane lane, std::span<const std::byte> payload) = 0;
  // OnSuspect: no frame came from the peer for LinkOptions::suspect_after. `silence`: the time
  // since the last one. OnHealthy: after OnSuspect a frame came on the same connections. If new
  // connections replace them first, OnHealed runs instead.
  virtual void OnSuspect(absl::Duration /*silence*/) {}
  virtual void OnHealthy() {}
  // The connections broke, or the link dropped them. The side that dialled now dials again.
  virtual void OnLost(const Status& /*why*/) {}
  // New connections replaced lost or suspect ones. `away`: the time without the peer.
  // `frames_resent`: how many frames are sent again.
  virtual void OnHealed(absl::Duration /*away*/, uint64_t /*frames_resent*/) {}
  // The last call, once. `reason` is kCancelled if this side ended the link, else it says why the
  // link ended. The `done` of every send has run before.
  virtual void OnClosed(const Status& reason) = 0;
};

// LinkOptions::credits for a line that was not measured: 16 MiB of full frames. They fill a line of
// 1 Gbit/s with a round trip of 130 ms.
inline constexpr uint32_t kDefaultCredits = 256;

// Returns the credits for a measured line that carries messages of `message_bytes` in chunks of up
// to kMaxFramePayloadBytes: as many as the line carries in two round trips plus 100 ms, but from 8
// to kDefaultCredits. Two round trips are enough even if the line gets twice as fast. More frames
// could overflow the network's queue in front of a stage to which both neighbours send.
// Retransmissions would be lost there, too, and the link would stop for seconds. A rate or round
// trip of 0 means "unknown": kDefaultCredits. `message_bytes` 0: all frames are full.
uint32_t CreditsFor(double bits_per_second, absl::Duration round_trip, uint64_t message_bytes);

// Required: 1 ms <= heartbeat_interval <= suspect_after <= peer_timeout.
struct LinkOptions {
  absl::Duration heartbeat_interval = absl::Milliseconds(50);
  absl::Duration suspect_after = absl::Milliseconds(500);
  absl::Duration peer_timeout = absl::Seconds(10);  // a longer silence ends the link
  // How many bulk frames the peer may have under way to this side, 1 to 65536. GrowCredits raises
  // the number.
  uint32_t credits = kDefaultCredits;
  // True: frames are encrypted and authenticated. If the two ends differ, the link does not open.
  bool sealed = false;
  // For Expect: addresses of the side that dials, in the form of Dial's addresses. Over the relay
  // transport, which cannot listen: where both sides meet; one usable address is enough. Over ucx:
  // the peer must dial from a host of these addresses; empty: from any host. Other transports
  // ignore this field.
  std::vector<std::string> peer_at = {};
};

class Link {
 public:
  // Runs once, on the loop. OK: the peer's handler got the frame. The acknowledgement takes a round
  // trip, and up to a heartbeat's interval more if little is sent. An error is kCancelled or the
  // reason why the link ended; the peer may or may not have got the frame.
  using SendDone = std::function<void(const Status&)>;

  // Closes the link without waiting. Frames that were never sent are dropped.
  virtual ~Link() = default;

  virtual const LinkKey& key() const = 0;
  // Queues a frame, which is sent once the peer has granted a credit for it. For a frame larger
  // than kMaxFramePayloadBytes `done` gets kInvalidArgument. After Close or the link's end `done`
  // gets the reason.
  virtual void Send(Lane lane, const FrameView& frame, SendDone done) = 0;
  // Ends the link; both handlers get OnClosed. Before that the link sends the frames that Send
  // accepted, if necessary over a new connection, but not after `deadline`. Returns at once. A
  // second call does nothing.
  virtual void Close(Deadline deadline) = 0;
  // Lets the peer have this many bulk frames under way to this side, at most 65536. A number below
  // the present one changes nothing.
  virtual void GrowCredits(uint32_t credits) = 0;
  virtual LinkStats stats() const = 0;
  // "ucx 10.77.0.2:41234 <-> 10.77.0.3:40312", for people.
  virtual std::string Describe() const = 0;
};

class Transport {
 public:
  // Runs once for each Expect or Dial, on the loop: with the open link or an error. Dial's error
  // names each address tried.
  using OpenDone = std::function<void(StatusOr<std::shared_ptr<Link>>)>;

  // Ends all links (kCancelled) and waits until they are gone. Must not be called from a callback.
  virtual ~Transport() = default;

  // Returns where this transport listens, with its real port: "10.77.0.2:41234". Empty for the
  // relay transport, which does not listen.
  virtual const std::string& address() const = 0;

  // Waits until a peer dials `key` and proves that it knows `secret`, the run's secret. The secret
  // itself never travels. kAlreadyExists: the key is expected already.
  virtual void Expect(const LinkKey& key, std::string_view secret,
                      std::shared_ptr<LinkHandler> handler, const LinkOptions& options,
                      Deadline deadline, OpenDone done) = 0;

  // Dials until `deadline`, address after address, over and over, because the peer may not be
  // expecting the link yet. Fails earlier if no address can ever work; without addresses the error
  // is kInvalidArgument. kAlreadyExists: the key is being dialled already. The part of an address
  // after '#' is secret: messages and descriptions leave it out.
  virtual void Dial(const std::vector<std::string>& addresses, const LinkKey& key,
                    std::string_view secret, std::shared_ptr<LinkHandler> handler,
                    const LinkOptions& options, Deadline deadline, OpenDone done) = 0;

  // Calls Dial if `dials`, else Expect without the addresses.
  void Open(bool dials, const std::vector<std::string>& addresses, const LinkKey& key,
            std::string_view secret, std::shared_ptr<LinkHandler> handler,
            const LinkOptions& options, Deadline deadline, OpenDone done) {
    if (dials) {
      Dial(addresses, key, secret, std::move(handler), options, deadline, std::move(done));
    } else {
      Expect(key, secret, std::move(handler), options, deadline, std::move(done));
    }
  }

  // Replaces the addresses of a peer that this side is dialling or has dialled. A working
  // connection stays. `addresses` must not be empty. Does nothing if there is no such link.
  virtual void Readdress(const LinkKey& key, const std::vector<std::string>& addresses) = 0;

  // Ends an Expect or Dial that has not opened its link; the `done` of that call gets kCancelled.
  // Does not close an open link.
  virtual void Cancel(const LinkKey& key) = 0;
};

// Transports by the name of their kind: "ucx", "grpc", "relay". The map does not own them.
using TransportsByName = std::map<std::string, Transport*, std::less<>>;

}  // namespace longhaul::transport
