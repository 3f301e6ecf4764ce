// Opening a link, both sides (the messages: hello.h). A Dialer tries addresses until a deadline;
// the Acceptor lets in who knows the secret of a link that is expected here.
//
// Threads: all on the loop. No callback runs inside the call that caused it.
#ifndef LONGHAUL_TRANSPORT_P2P_CORE_HANDSHAKE_H_
#define LONGHAUL_TRANSPORT_P2P_CORE_HANDSHAKE_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/wire/link_header.h"
#include "transport/p2p/core/channel.h"
#include "transport/p2p/core/event_loop.h"
#include "transport/p2p/core/hello.h"
#include "transport/p2p/core/link_core.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Two channels whose peers have proved themselves.
struct OpenedLink {
  uint64_t link_id = 0;
  uint16_t version = 0;
  uint32_t peer_credits = 0;
  std::array<std::shared_ptr<Channel>, kLanes> channels;
};

// Sends a frame of the handshake; keeps its bytes until they are gone.
void SendHandshakeFrame(Channel& channel, wire::LinkKind kind, Lane lane, uint64_t link_id,
                        uint32_t credits, std::vector<std::byte> payload);

// One try at one address: both lanes, or why not.
class DialAttempt : public std::enable_shared_from_this<DialAttempt> {
 public:
  // `final`: another try at this address would end the same way.
  using Done = std::function<void(StatusOr<OpenedLink>, bool final)>;
  DialAttempt(std::shared_ptr<EventLoop> loop, LinkKey key, std::string secret, uint32_t credits,
              Done done);
  void Start(Backend& backend, const std::string& address, MonoTime limit);
  // Drops the channels; `done` does not run.
  void Cancel();

 private:
  class LaneEvents;
  struct LaneState {
    std::shared_ptr<Channel> channel;
    std::string nonce;
    uint16_t version = 0;
    bool open = false;
  };
  void OnMessage(Lane lane, std::span<const std::byte> header, std::span<const std::byte> payload);
  Status HandleWelcome(Lane lane, const wire::LinkHeader& header, const LinkWelcome& welcome);
  void SendHello(Lane lane, const LinkHello& hello);
  void Fail(const Status& status, bool final);
  void Finish(StatusOr<OpenedLink> result, bool final);

  const std::shared_ptr<EventLoop> loop_;
  const LinkKey key_;
  const std::string secret_;
  const uint32_t credits_;
  const uint64_t link_id_;
  Done done_;  // empty: over
  std::array<LaneState, kLanes> lanes_;
  uint32_t peer_credits_ = 0;
  std::optional<EventLoop::TimerId> timer_;
};

// Tries one address after the other, and again with growing pauses, until one opens, all refuse for
// good, or the deadline passes.
class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  using Done = std::function<void(StatusOr<OpenedLink>)>;
  Dialer(std::shared_ptr<EventLoop> loop, Backend* backend, std::vector<std::string> addresses,
         LinkKey key, std::string secret, uint32_t credits, MonoTime deadline, Done done);
  void Start();
  // Ends it; `done` does not run.
  void Cancel();

 private:
  struct Address {
    std::string text;
    Status error;
    bool final = false;
  };
  void TryNext();
  void OnAttempt(StatusOr<OpenedLink> result, bool final);
  void GiveUp(absl::StatusCode code, std::string_view why);
  void StopTimers();

  const std::shared_ptr<EventLoop> loop_;
  Backend* const backend_;
  std::vector<Address> addresses_;
  const LinkKey key_;
  const std::string secret_;
  const uint32_t credits_;
  const MonoTime started_;
  const MonoTime deadline_;
  Done done_;
  size_t next_ = 0;
  absl::Duration pause_;
  std::shared_ptr<DialAttempt> attempt_;
  std::optional<EventLoop::TimerId> deadline_timer_, pause_timer_;
};

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Done = std::function<void(StatusOr<OpenedLink>)>;
  explicit Acceptor(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  // kAlreadyExists (through `done`) for a key that is expected already.
  void Expect(const LinkKey& key, std::string secret, uint32_t credits, MonoTime deadline,
              Done done);
  // False if it was not expected. Its `done` does not run.
  bool Cancel(const LinkKey& key);
  // A new connection.
  void Accept(std::shared_ptr<Channel> channel);
  // Drops everything; no `done` runs.
  void Shutdown();

 private:
  class Guest;
  class HalfOpenEvents;
  struct Expected {
    std::string secret;
    uint32_t credits = 0;
    Done done;
    EventLoop::TimerId timer;
    OpenedLink half_open;  // the lanes that have proved themselves, of one link id
  };
  void DropHalfOpen(Expected& expected);
  void OnProved(const LinkKey& key, Lane lane, const OpenedLink& proved,
                std::shared_ptr<Channel> channel);

  const std::shared_ptr<EventLoop> loop_;
  std::map<LinkKey, Expected> expected_;
  std::set<std::shared_ptr<Guest>> guests_;
};

}  // namespace longhaul::transport::internal

#endif  // LONGHAUL_TRANSPORT_P2P_CORE_HANDSHAKE_H_
