// Point-to-point links between neighbouring stages: ordered frames in both directions at once, with
// checksums and credits. A link watches its peer, and replaces connections that break.
//
//   auto transport = ucx::CreateTransport({.bind_address = "10.77.0.2:0"});
//   (*transport)->Expect(key, secret, handler, options, deadline, done);  // on one side, and
//   // on the other side, with the address of the first:
//   (*transport)->Dial({"10.77.0.2:41234"}, key, secret, handler, options, deadline, done);
//
// A link has two lanes, each with a connection of its own: kBulk for tensors, and kControl for
// small urgent messages, which a full bulk lane never delays. Order holds within a lane, not across
// lanes.
//
// A link outlives its connections. If they break or fall silent, or if one makes no progress though
// the peer lives, the side that dialled dials again. Until new connections are open, frames wait,
// and the handler is told. The link then continues, with every frame once and in order. The link
// ends if the peer stays away for peer_timeout or has given the link up. After Readdress the peer
// is dialled at its new addresses.
//
// Threads: every Transport owns one event-loop thread. All public methods may be called from any
// thread and never block. All callbacks run on the loop, never inside the call that caused them,
// with no lock held; they must not block. A callback may call any method, Close included.
// Ownership: the caller keeps Link and Transport; a Link keeps its Transport's loop alive. Handlers
// are shared; after OnClosed a handler is never called again.
// Errors: kUnavailable: the peer was not reached or is gone. kInvalidArgument: invalid frames.
// kDataLoss: a wrong checksum. kPermissionDenied: a wrong secret. kCancelled: closed on this side.
// kDeadlineExceeded.
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

// Names a link. Both ends use the same key.
struct LinkKey {
  RunId run;
  Epoch epoch;
  EdgeId edge;
  friend bool operator==(const LinkKey&, const LinkKey&) = default;
  friend auto operator<=>(const LinkKey&, const LinkKey&) = default;
};

// A frame's payload in up to two pieces, `header` and then `body`. The view does not own its bytes.
// The bytes must not change until the send's `done`, because the link may have to send them again.
struct FrameView {
  std::span<const std::byte> header;
  std::span<const std::byte> body;
  size_t size() const { return header.size() + body.size(); }
};

struct LinkStats {
  uint64_t frames_sent = 0, frames_received = 0;
  uint64_t payload_bytes_sent = 0, payload_bytes_received = 0;  // caller's bytes
  uint64_t link_bytes_sent = 0, link_bytes_received = 0;        // all frames, with their headers
  uint64_t heartbeats_sent = 0, heartbeats_received = 0;
  uint64_t reconnects = 0;         // how often new connections replaced old ones
  uint64_t frames_resent = 0;      // sent again on a new connection; not in frames_sent
  uint64_t frames_repeated = 0;    // received again and dropped; not in frames_received
  uint64_t frames_waiting = 0;     // accepted by Send, not yet taken by the peer
  absl::Duration longest_silence;  // between two signs of life of the peer
  absl::Duration credit_wait;      // time with a connection, frames waiting and no credit
};

class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // Called for each whole frame, in order. `payload` is valid during the call only: copy it and
  // return. The frame's credit goes back to the peer only when OnFrame returns.
  virtual void OnFrame(Lane lane, std::span<const std::byte> payload) = 0;
  // OnSuspect: no sign of life came for suspect_after. OnHealthy: one came after that.
  virtual void OnSuspect(absl::Duration /*silence*/) {}
  virtual void OnHealthy() {}
  // The connections broke, or were given up. The side that dialled now dials again.
  virtual void OnLost(const Status& /*why*/) {}
  // New connections replaced lost or suspect ones. `away`: the time without the peer.
  // `frames_resent`: how many frames are sent again.
  virtual void OnHealed(absl::Duration /*away*/, uint64_t /*frames_resent*/) {}
  // The last call, once. `reason` is kCancelled after Close, else it says why the peer is gone. The
  // `done` of every send has run before.
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
// trip of 0 is unknown: kDefaultCredits.
uint32_t CreditsFor(double bits_per_second, absl::Duration round_trip, uint64_t message_bytes);

struct LinkOptions {
  absl::Duration heartbeat_interval = absl::Milliseconds(50);
  absl::Duration suspect_after = absl::Milliseconds(500);
  absl::Duration peer_timeout = absl::Seconds(10);  // a longer silence ends the link
  // How many bulk frames the peer may have under way to this side. GrowCredits raises the number.
  uint32_t credits = kDefaultCredits;
  // True: frames are encrypted and authenticated. If the two ends differ, the link does not open.
  bool sealed = false;
  // For Expect over a transport that cannot listen: the addresses, in the form of Dial's, where
  // this side waits for the side that dials.
  std::vector<std::string> wait_at = {};
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
  // than kMaxFramePayloadBytes `done` gets kInvalidArgument.
  virtual void Send(Lane lane, const FrameView& frame, SendDone done) = 0;
  // Ends the link; both handlers get OnClosed. Before that the link sends the frames that Send
  // accepted, if necessary over a new connection, but not after `deadline`. Returns at once.
  // Idempotent.
  virtual void Close(Deadline deadline) = 0;
  // Lets the peer have this many bulk frames under way to this side. A number below the present one
  // changes nothing.
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

  // Returns where this transport listens, with its real port: "10.77.0.2:41234".
  virtual const std::string& address() const = 0;

  // Waits until a peer dials `key` and proves that it knows `secret`. kAlreadyExists: the key is
  // expected already.
  virtual void Expect(const LinkKey& key, std::string_view secret,
                      std::shared_ptr<LinkHandler> handler, const LinkOptions& options,
                      Deadline deadline, OpenDone done) = 0;

  // Dials until `deadline`, address after address, over and over, because the peer may not be
  // expecting the link yet. The part of an address after '#' is secret: messages and descriptions
  // leave it out. kAlreadyExists: the key is being dialled already.
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
  // connection stays. Does nothing if there is no such link.
  virtual void Readdress(const LinkKey& key, const std::vector<std::string>& addresses) = 0;

  // Ends an Expect or Dial that has not opened its link; the `done` of that call gets kCancelled.
  // Does not close an open link.
  virtual void Cancel(const LinkKey& key) = 0;
};

// Transports by the name of their kind. Does not own them.
using TransportsByName = std::map<std::string, Transport*, std::less<>>;

}  // namespace longhaul::transport
