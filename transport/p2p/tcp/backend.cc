#include "transport/p2p/tcp/backend.h"

#include <fmt/core.h>

#include <functional>
#include <string>
#include <utility>

#include "base/address.h"
#include "base/unique_fd.h"
#include "proto/rpc/listener.h"
#include "transport/p2p/core/transport_core.h"
#include "transport/p2p/stream/stream_connection.h"

namespace longhaul::transport::tcp {
namespace {

using internal::Connection;
using stream::ConnectionTable;

class TcpConnection : public stream::StreamConnection {
 public:
  // What the listener is told of an accepted connection; both are empty for a dialled one.
  struct Told {
    std::function<void()> admitted = {};
    std::function<void()> closed = {};
  };

  static std::shared_ptr<TcpConnection> Dialled(const std::shared_ptr<EventLoop>& loop,
                                                const std::shared_ptr<ConnectionTable>& table,
                                                const std::string& own_address,
                                                const HostPort& address) {
    const auto connection = Make(loop, table, own_address, ToString(address), {});
    connection->Dial(address, longhaul::relay::kJoinedKeepAlive);
    return connection;
  }
  static std::shared_ptr<TcpConnection> Accepted(const std::shared_ptr<EventLoop>& loop,
                                                 const std::shared_ptr<ConnectionTable>& table,
                                                 const std::string& own_address,
                                                 const std::string& peer, UniqueFd fd, Told told) {
    const auto connection = Make(loop, table, own_address, peer, std::move(told));
    connection->Adopt(std::move(fd));
    return connection;
  }

 private:
  TcpConnection(const std::shared_ptr<EventLoop>& loop,
                const std::shared_ptr<ConnectionTable>& table, const std::string& own_address,
                const std::string& peer, Told told)
      : StreamConnection(loop, table,
                         {.description = fmt::format("{} <-> {}", own_address, peer),
                          .ended = "the peer ended the connection",
                          .broken = ""}),
        told_(std::move(told)) {}
  static std::shared_ptr<TcpConnection> Make(const std::shared_ptr<EventLoop>& loop,
                                             const std::shared_ptr<ConnectionTable>& table,
                                             const std::string& own_address,
                                             const std::string& peer, Told told) {
    std::shared_ptr<TcpConnection> connection(
        new TcpConnection(loop, table, own_address, peer, std::move(told)));
    table->connections.Add(connection);
    return connection;
  }

  void OnConnected() override { Open(); }
  void OnAdmitted() override {
    if (told_.admitted) told_.admitted();
  }
  void OnClosing() override {
    if (told_.closed) told_.closed();
  }

  const Told told_;
};

class TcpBackend : public internal::Backend {
 public:
  explicit TcpBackend(TcpOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "tcp"; }

  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    loop_ = loop;
    accept_ = std::move(accept);
    table_->resolver = std::make_shared<stream::Resolver>(loop);
    LH_ASSIGN_OR_RETURN(listener_, Listener::Create(loop, options_.bind_address,
                                                    [this](int fd) { Take(UniqueFd(fd)); }));
    address_ = listener_->address();
    return address_;
  }

  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    LH_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
    return TcpConnection::Dialled(loop_, table_, address_, parsed);
  }

  void Shutdown(std::function<void()> done) override {
    listener_->StopListening();
    table_->connections.CloseAll([this, done = std::move(done)] {
      loop_->Post([this, done] {
        listener_.reset();
        done();
      });
    });
  }

 private:
  void Take(UniqueFd fd) {
    const std::string peer = PeerTextOf(fd.get());
    if (peer.empty()) return;  // gone already; the listener sees that too
    accept_(TcpConnection::Accepted(loop_, table_, address_, peer, std::move(fd),
                                    {.admitted = [this, peer] { listener_->Admit(peer); },
                                     .closed = [this, peer] { listener_->Cut(peer); }}));
  }

  const TcpOptions options_;
  std::shared_ptr<EventLoop> loop_;
  Accept accept_;
  std::string address_;
  std::unique_ptr<Listener> listener_;
  const std::shared_ptr<ConnectionTable> table_ = std::make_shared<ConnectionTable>();
};

}  // namespace

std::unique_ptr<internal::Backend> NewBackend(const TcpOptions& options) {
  return std::make_unique<TcpBackend>(options);
}

StatusOr<std::unique_ptr<Transport>> CreateTransport(const TcpOptions& options) {
  return internal::NewTransport(NewBackend(options));
}

}  // namespace longhaul::transport::tcp
