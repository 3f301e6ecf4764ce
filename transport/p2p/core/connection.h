// The interface between links and backends (ucx, grpc, relay, loopback). A backend carries whole
// messages in order over connections. Links do everything else, in the same way for every backend:
// they admit peers, check frames, grant credits, send heartbeats, and say goodbye at the end.
//
// Threads: all calls and all callbacks are on one EventLoop. Callbacks must not be null, unless a
// comment allows it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// A link has one connection for each Lane.
inline constexpr size_t kLanes = 2;

class ConnectionEvents {
 public:
  virtual ~ConnectionEvents() = default;
  // Gets a whole message that the peer passed to Send. The spans are valid only during the call.
  // Never runs inside a method of Connection.
  virtual void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
  // The last event; runs once, after every `done`. The reason is kCancelled after Close. Otherwise,
  // also if connecting failed, the reason names the cause and is usually kUnavailable. UCX reports
  // kInvalidArgument for an address that is not one.
  virtual void OnClosed(const Status& reason) = 0;
};

// One connection.
class Connection {
 public:
  using SendDone = std::function<void(const Status&)>;

  virtual ~Connection() = default;
  // Sets the receiver of this connection's events. First call it in the accept callback, or right
  // after Connect. A later call replaces the receiver. The connection releases `events` after
  // OnClosed.
  virtual void SetEvents(std::shared_ptr<ConnectionEvents> events) = 0;
  // Sends `header` and `payload` as one message. Their bytes must not change until `done` has run.
  // `done` runs once, never inside Send. It gets kCancelled or kUnavailable if the connection is
  // closed or breaks before the message is sent. OK does not mean that the peer has the message.
  virtual void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) = 0;
  // Drops the connection and all bytes under way. No message arrives after this call. If a
  // handshake is under way, OnClosed may come only when it ends. Idempotent.
  virtual void Close() = 0;
  // Returns a text for people: "10.77.0.2:41234 <-> 10.77.0.3:40312".
  virtual std::string Describe() const = 0;
};

// The connections of a backend. The backend removes each connection at its last event.
template <class Kind>
class ConnectionSet {
 public:
  void Add(std::shared_ptr<Kind> connection) { all_.insert(std::move(connection)); }
  void Remove(const std::shared_ptr<Kind>& connection) {
    all_.erase(connection);
    if (all_.empty()) Forget();
  }
  // Closes all connections. `done` runs once, when none is left; null: nothing runs. A later call
  // replaces the `done` of an earlier one.
  void CloseAll(std::function<void()> done) {
    const auto all = all_;  // a copy: a connection that closes leaves the set
    for (const auto& connection : all) connection->Close();
    on_empty_ = std::move(done);
    if (all_.empty()) Forget();
  }
  // Runs CloseAll's `done` now, and no longer waits for connections that do not close.
  void Forget() {
    if (on_empty_) std::exchange(on_empty_, nullptr)();
  }
  size_t size() const { return all_.size(); }

 private:
  std::set<std::shared_ptr<Kind>> all_;
  std::function<void()> on_empty_;
};

class Backend {
 public:
  using Accept = std::function<void(std::shared_ptr<Connection>)>;

  virtual ~Backend() = default;
  // The name for people: "ucx", "loopback".
  virtual std::string name() const = 0;
  // Starts to listen, and gives each incoming connection to `accept`. Returns the address, with its
  // real port; empty if the backend does not listen. Call it once, first. Errors: the backend's
  // factory.h.
  virtual StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) = 0;
  // Dials `address`. Returns at once; the connection's events tell whether the peer is there.
  // kInvalidArgument: not an address, or not one that this backend can use.
  virtual StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) = 0;
  // For a side that peers cannot dial. Starts to wait at `address`, a meeting place such as a
  // relay, and gives each peer that dials there to Start's `accept`. Returns at once; the waiting
  // ends when the result is destroyed. kInvalidArgument: not an address, or this backend listens
  // instead.
  virtual StatusOr<std::shared_ptr<void>> WaitAt(const std::string& /*address*/) {
    return absl::InvalidArgumentError(name() + " listens, and waits nowhere else");
  }
  // Lets peers connect from the hosts of these addresses, until the result is destroyed. Empty
  // `addresses`: from every host. A backend whose port withstands strangers returns null, and lets
  // everybody connect at all times.
  virtual std::shared_ptr<void> AdmitPeers(const std::vector<std::string>& /*addresses*/) {
    return nullptr;
  }
  // Returns OK, or an error that says why this backend carries only sealed (encrypted) links.
  virtual Status CarriesPlainLinks() const { return absl::OkStatus(); }
  // Closes all connections and the listener; then calls `done`, after which the backend may be
  // destroyed. Must not be called twice.
  virtual void Shutdown(std::function<void()> done) = 0;
};

}  // namespace longhaul::transport::internal
