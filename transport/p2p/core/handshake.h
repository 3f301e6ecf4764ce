// Both sides of the handshake that opens a link or resumes one after a break (messages: hello.h). A
// Dialer tries addresses until a deadline. The Acceptor admits peers that know the secret of a link
// that is expected or open here.
//
// Threads: all on the loop. No callback runs inside the call that caused it. Callbacks must not be
// null.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/seal.h"
#include "proto/wire/link_header.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/core/hello.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Highest sequence received on each lane.
using Received = std::array<uint64_t, kLanes>;

// The link that a dialler asks for.
struct LinkClaim {
  uint64_t link_id = 0;
  uint32_t attempt = 0;  // 0: a new link; n: the nth time that a broken link is resumed
  Received received{};   // by the dialler
};
// Returns a claim of attempt 0 with a random link id above 0.
LinkClaim ClaimNewLink();

// Two connections whose peers have proved themselves.
struct OpenedLink {
  uint64_t link_id = 0;
  uint16_t version = 0;       // of the link's messages, the highest that both sides speak
  uint32_t attempt = 0;       // as in LinkClaim
  uint32_t peer_credits = 0;  // how many bulk frames this side may have in flight to the peer
  Received told{};            // highest sequences that this side reported to the peer
  Received received{};        // highest sequences that the peer reported
  std::array<std::shared_ptr<Connection>, kLanes> connections;
  std::string address;  // the dialled address; empty on the listening side
  // Duration of the successful DialAttempt, a few round trips; zero on the listening side.
  absl::Duration handshake;
};

// Returns a connection that encrypts what it sends over `connection` (sealed_connection.h). `side`
// uses it after both sides have proved themselves. `input`: what the proofs cover; the nonce of
// `side` in it is the public half of `own`. kInvalidArgument: the peer's nonce is no usable key.
StatusOr<std::shared_ptr<Connection>> SealedAfter(std::shared_ptr<Connection> connection,
                                                  std::string_view secret, Side side,
                                                  const EphemeralKey& own, const ProofInput& input);

// Sends a frame of the handshake and keeps its bytes until they are sent. `credits`: how many bulk
// frames the peer may have in flight to this side; 0 in frames that grant none. Does not report
// whether the frame was sent.
void SendHandshakeFrame(Connection& connection, wire::LinkKind kind, Lane lane, uint64_t link_id,
                        uint32_t credits, std::vector<std::byte> payload);

struct DialOptions {
  std::vector<std::string> addresses;
  LinkKey key;
  std::string secret;
  uint32_t credits = 0;  // as in LinkOptions; must be set, because the peer refuses 0
  bool sealed = false;   // as in LinkOptions
  MonoTime deadline;
  // Time limit of one attempt: connect and four messages. The default allows for one or two lost
  // packets on a long line. A silent host must not use up the time of the next address.
  absl::Duration attempt_limit = absl::Seconds(3);
  // Called before each try; returns the link to ask for.
  std::function<LinkClaim()> claim = &ClaimNewLink;
};

// One try to open a link at one address. `done` runs once, and gets the connections of both lanes
// or an error.
class DialAttempt : public std::enable_shared_from_this<DialAttempt> {
 public:
  // `final`: another try at this address would end the same way.
  using Done = std::function<void(StatusOr<OpenedLink>, bool final)>;
  DialAttempt(std::shared_ptr<EventLoop> loop, const DialOptions& options, const LinkClaim& claim,
              Done done);
  // Call it once. Uses `backend` only during the call. If the link is not open at `limit`, `done`
  // gets kUnavailable.
  void Start(Backend& backend, const std::string& address, MonoTime limit);
  // Drops the connections; `done` does not run.
  void Cancel();
  // True if the listener may have opened the link, even if this attempt fails.
  bool committed() const { return committed_; }

 private:
  class LaneEvents;
  struct LaneState {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<Connection> opens;  // the link's connection: the same, or its sealed form
    EphemeralKey ephemeral;             // its public half is the nonce
    uint16_t version = 0;
    bool open = false;
  };
  void OnMessage(Lane lane, std::span<const std::byte> header, std::span<const std::byte> payload);
  Status HandleWelcome(Lane lane, const wire::LinkHeader& header, const LinkWelcome& welcome);
  void SendHello(Lane lane, const LinkHello& hello);
  uint16_t VersionMin() const {
    return sealed_ ? wire::kLinkVersionOfSeals : wire::kLinkVersionMin;
  }
  void Fail(const Status& status, bool final);
  void Finish(StatusOr<OpenedLink> result, bool final);

  const std::shared_ptr<EventLoop> loop_;
  const LinkKey key_;
  const std::string secret_;
  const uint32_t credits_;
  const bool sealed_;
  const LinkClaim claim_;
  const MonoTime started_;
  std::string address_;
  Done done_;  // empty: over
  std::array<LaneState, kLanes> lanes_;
  Received peer_received_{};
  uint32_t peer_credits_ = 0;
  bool committed_ = false;
  std::optional<EventLoop::TimerId> timer_;
};

// Tries address after address, over and over with growing pauses. `done` runs once: with the link,
// with kDeadlineExceeded, or, if another try is useless at every address (`final`), with the code
// of the first address's error. Without addresses the code is kInvalidArgument. The message names
// every address with its error. `backend` must outlive this object.
class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  using Done = std::function<void(StatusOr<OpenedLink>)>;
  Dialer(std::shared_ptr<EventLoop> loop, Backend* backend, DialOptions options, Done done);
  void Start();
  // Replaces the addresses. If an attempt is committed (see below), it ends first.
  void Readdress(const std::vector<std::string>& addresses);
  // Stops dialling; `done` does not run.
  void Cancel();
  // True if the attempt under way may have opened the link at the listener. The caller should then
  // wait for the attempt's end.
  bool committed() const { return attempt_ && attempt_->committed(); }
  // Returns "; 10.77.0.2:41234: no answer" for each address, with the address's last error.
  std::string Errors() const;

 private:
  struct Address {
    std::string text;
    Status error;
    bool final = false;
  };
  void SetAddresses(const std::vector<std::string>& addresses);
  void TryNext();
  void OnAttempt(const std::string& address, StatusOr<OpenedLink> result, bool final);
  void GiveUp(absl::StatusCode code, std::string_view why);
  void StopTimer(std::optional<EventLoop::TimerId>* timer);

  const std::shared_ptr<EventLoop> loop_;
  Backend* const backend_;
  const DialOptions options_;
  const MonoTime started_;
  std::vector<Address> addresses_;
  Done done_;
  size_t next_ = 0;
  absl::Duration pause_;
  std::shared_ptr<DialAttempt> attempt_;
  std::optional<EventLoop::TimerId> deadline_timer_, pause_timer_;
};

// Admits or refuses the connections of a listening transport, one for each lane of a link.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Done = std::function<void(StatusOr<OpenedLink>)>;
  explicit Acceptor(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  // Expects that a peer dials the new link `key` and proves that it knows `secret`. `done` runs
  // once: with the link, with kDeadlineExceeded after `deadline`, or with kAlreadyExists for a key
  // that is expected already.
  void Expect(const LinkKey& key, std::string secret, const LinkOptions& options, MonoTime deadline,
              Done done);
  // Stops expecting the link; its `done` does not run. False if the link was not expected.
  bool Cancel(const LinkKey& key);
  // Lets the dialler of an open link come back, any number of times until Release. `received`
  // returns this side's highest sequences; `done` gets the new connections each time.
  void Hold(const LinkKey& key, uint64_t link_id, std::string secret, const LinkOptions& options,
            std::function<Received()> received, Done done);
  // Ends Hold: the dialler is refused from now on.
  void Release(const LinkKey& key, uint64_t link_id);
  // Takes a connection that the backend accepted. Closes it if the peer does not prove itself
  // within 5 s, and at once if too many connections wait for a proof.
  void Accept(std::shared_ptr<Connection> connection);
  // Drops everything; no `done` runs.
  void Shutdown();

 private:
  class Guest;
  class HalfOpenEvents;
  // A link that a guest (a peer in its handshake) may ask for.
  struct Place {
    std::string secret;
    uint32_t credits = 0;
    bool sealed = false;
    Done done;
    std::optional<EventLoop::TimerId> timer;  // set while the link is expected
    std::function<Received()> received;       // set while the link is open
    uint32_t newest_attempt = 0;
    OpenedLink half_open;  // the lanes with a valid proof, of one link id and attempt
  };
  // Null if the link is neither expected nor open here.
  Place* Find(const LinkKey& key, uint64_t link_id, uint32_t attempt);
  void DropHalfOpen(Place& place);
  // `proved` has the connection of one lane.
  void OnProved(const LinkKey& key, Lane lane, OpenedLink proved);

  const std::shared_ptr<EventLoop> loop_;
  std::map<LinkKey, Place> expected_;
  std::map<std::pair<LinkKey, uint64_t>, Place> open_;  // by key and link id
  std::set<std::shared_ptr<Guest>> guests_;
};

}  // namespace longhaul::transport::internal
