// The interface between links and backends (ucx, grpc, relay, loopback). A backend carries whole
// messages in order over connections. All else is done once, above it: who may open a link, checks,
// credits, heartbeats, the orderly end.
//
// Threads: all calls and all callbacks are on one EventLoop.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/event_loop.h"
#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// A link has one connection for each Lane.
inline constexpr size_t kLanes = 2;

class ConnectionEvents {
 public:
  virtual ~ConnectionEvents() = default;
  // A whole message of the peer's Send. Valid during the call. Never runs inside a method of
  // Connection.
  virtual void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
  // The last call, once; every `done` ran before. kCancelled after Close, else kUnavailable with
  // the cause, a failed connect included.
  virtual void OnClosed(const Status& reason) = 0;
};

// One connection.
class Connection {
 public:
  using SendDone = std::function<void(const Status&)>;

  virtual ~Connection() = default;
  // Sets who gets this connection's events; first called in the accept callback or right after
  // Connect. The connection releases `events` after OnClosed.
  virtual void SetEvents(std::shared_ptr<ConnectionEvents> events) = 0;
  // Sends `header` and `payload` as one message. Neither must change until `done`, which runs once,
  // later. After Close: kCancelled.
  virtual void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) = 0;
  // Drops the connection and all bytes under way; no message comes from it any more. OnClosed may
  // take as long as a handshake that is under way. Idempotent.
  virtual void Close() = 0;
  // "10.77.0.2:41234 <-> 10.77.0.3:40312".
  virtual std::string Describe() const = 0;
};

// The connections of a backend. They keep themselves in it until their last event.
template <class Kind>
class ConnectionSet {
 public:
  void Add(std::shared_ptr<Kind> connection) { all_.insert(std::move(connection)); }
  void Remove(const std::shared_ptr<Kind>& connection) {
    all_.erase(connection);
    if (all_.empty()) Forget();
  }
  // Closes all; `done` runs once, when none is left.
  void CloseAll(std::function<void()> done) {
    const auto all = all_;  // a copy: a connection that closes leaves the set
    for (const auto& connection : all) connection->Close();
    on_empty_ = std::move(done);
    if (all_.empty()) Forget();
  }
  // Waits no longer for those that do not close: runs CloseAll's `done`.
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
  // "ucx", "loopback".
  virtual std::string name() const = 0;
  // Listens and gives each incoming connection to `accept`. Returns where it listens.
  virtual StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) = 0;
  // Returns at once; the connection's events tell whether the peer is there. kInvalidArgument: not
  // an address.
  virtual StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) = 0;
  // Where others cannot dial this side: waits at `address`, and gives whoever dials there to
  // `accept`, until the result is gone. kInvalidArgument: not an address, or this backend listens.
  virtual StatusOr<std::shared_ptr<void>> WaitAt(const std::string& /*address*/) {
    return absl::InvalidArgumentError(name() + " listens, and waits nowhere else");
  }
  // Not OK: why this backend carries no links that are not sealed.
  virtual Status CarriesPlainLinks() const { return absl::OkStatus(); }
  // Closes all connections and the listener; calls `done` when nothing of the backend is left.
  // Once.
  virtual void Shutdown(std::function<void()> done) = 0;
};

}  // namespace longhaul::transport::internal
