// The listening port of a gRPC server: accepts connections, passes them to gRPC, and limits
// strangers, which are connections whose peer has not proved its identity yet.
//
// Why gRPC's own listener is not used: it accepts any number of connections, and stops for good
// when the process runs out of descriptors. gRPC also reads a whole message, even of gigabytes,
// before it finds the message too long. This listener keeps at most kMaxStrangers strangers, cuts a
// stranger after kStrangerLimit, or after about kMaxStrangerBytes, and watches and cuts a
// connection through a second descriptor of the socket.
//
// What if more come? If those before them prove who they are, it is a crowd, as of workers whose
// coordinator is back: the others wait, and cost a descriptor each. If they do not, it is an
// attack, and a new one replaces the oldest, so that whoever knows the secret gets in all the same.
//
// Threads: create, call and destroy a Listener on the loop's thread. PeerText and PeerTextOf: any
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/status.h"

namespace longhaul {

inline constexpr size_t kMaxStrangers = 128;
// Connections that wait until one of kMaxStrangers is known or gone. gRPC does not have them yet.
inline constexpr size_t kMaxWaitingStrangers = 1024;
// How long a stranger that says nothing keeps its place from those that wait.
inline constexpr absl::Duration kStrangerTurn = absl::Seconds(2);
// The same for one that has said something. A handshake takes milliseconds, but the processor has
// many of them to do, and those that are cut begin anew.
inline constexpr absl::Duration kTalkingStrangerTurn = absl::Seconds(6);
// How long a connection may stay a stranger. This is enough for connecting, HTTP/2's greeting and
// four messages on a long line. It is more than a data link's Acceptor allows.
inline constexpr absl::Duration kStrangerLimit = absl::Seconds(8);
// How much a stranger may send: room for HTTP/2's greeting and a first call, at most 8 KiB of
// metadata and a few KB of message. The limit is small because gRPC uses 20 KB for every call,
// however short. Up to TCP's first window, 64 KiB, may be read before the cut.
inline constexpr size_t kMaxStrangerBytes = 16 << 10;

class Listener {
 public:
  // The Listener calls this function on the loop for every new connection. The function takes
  // ownership of `fd`, a nonblocking socket.
  using HandOver = std::function<void(int fd)>;
  // Listens at "host:port". kInvalidArgument: not an address. kAlreadyExists: the port is in use.
  // kFailedPrecondition: not an address of this host. Other errors: by errno.
  static StatusOr<std::unique_ptr<Listener>> Create(std::shared_ptr<EventLoop> loop,
                                                    const std::string& address, HandOver hand_over);
  // Stops listening, and cuts all connections.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The listening address, with the real port if 0 was requested.
  const std::string& address() const { return address_; }
  // Marks the connection of `peer` (in the form of PeerText) as known: it belongs to the member of
  // this name ("": to nobody), and is cut at `until`; nullopt: never. Does nothing if the
  // connection is gone, or known already.
  void Admit(const std::string& peer, const std::string& member = "",
             std::optional<MonoTime> until = std::nullopt);
  // Cuts the connection of `peer`, if there is one.
  void Cut(const std::string& peer);
  // Cuts every connection that Admit has given to the member of this name.
  void CutMember(const std::string& member);
  // Calls `gone` on the loop with the peer of each connection that Admit was called for, once the
  // connection is gone.
  void WhenGone(std::function<void(const std::string& peer)> gone) { gone_ = std::move(gone); }
  // Cuts all connections, also of strangers.
  void CutAll();
  // Takes no new connections; existing ones stay.
  void StopListening();

 private:
  struct Connection {
    std::string peer;
    std::string member = {};
    int fd = -1;
    bool stranger = true;
    bool has_spoken = false;
    MonoTime since;
    EventLoop::TimerId timer;
  };
  struct Waiting {
    int fd = -1;
    std::string peer;
  };
  using Connections = std::list<Connection>;

  Listener(std::shared_ptr<EventLoop> loop, int fd, std::string address, HandOver hand_over);
  Status Listen();
  void AcceptSome();
  void Take(int fd, std::string peer);
  void Begin(int fd, std::string peer);
  // Gives places to those that wait.
  void ServeWaiting();
  // Returns the stranger whose turn ends first, and when.
  std::pair<Connections::iterator, MonoTime> FirstTurn();
  bool IsCrowd() const;
  void StrangerLeft(bool is_known);
  void Pause(int error);
  void OnEvent(Connections::iterator connection, uint32_t events);
  void Forget(Connections::iterator connection);

  const std::shared_ptr<EventLoop> loop_;
  const std::string address_;
  const HandOver hand_over_;
  std::function<void(const std::string& peer)> gone_;
  int fd_;
  Connections known_connections_, strangers_;  // oldest first
  std::unordered_map<std::string, Connections::iterator> by_peer_;
  std::deque<Waiting> waiting_;  // oldest first
  // What became of strangers since there was no place for more: of a crowd most become known.
  size_t known_ = 0, lost_ = 0;
  bool is_serving_ = false;
  std::optional<EventLoop::TimerId> pause_timer_, turn_timer_;
};

// Returns the peer of a connected socket, in the form of PeerText; "" if the connection is gone.
std::string PeerTextOf(int fd);
// Converts gRPC's "ipv4:127.0.0.1:4711" to "127.0.0.1:4711", and "ipv6:%5Bfd00::1%5D:4711" to
// "[fd00::1]:4711".
std::string PeerText(const std::string& grpc_peer);

}  // namespace longhaul
