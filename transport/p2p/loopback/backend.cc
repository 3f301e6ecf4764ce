#include "transport/p2p/loopback/backend.h"

#include <fmt/core.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "transport/p2p/core/transport_core.h"

namespace longhaul::transport::loopback {
namespace {

using internal::Backend;
using internal::Connection;
using internal::ConnectionEvents;

class LoopbackConnection : public Connection,
                           public std::enable_shared_from_this<LoopbackConnection> {
 public:
  LoopbackConnection(std::shared_ptr<EventLoop> loop, std::string description)
      : loop_(std::move(loop)), description_(std::move(description)) {}

  // Before any use.
  void SetPeer(std::weak_ptr<LoopbackConnection> peer) { peer_ = std::move(peer); }

  void SetEvents(std::shared_ptr<ConnectionEvents> events) override { events_ = std::move(events); }

  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override {
    Status status;
    if (closed_) {
      status = absl::CancelledError("the channel is closed");
    } else if (const auto peer = peer_.lock()) {
      std::vector<std::byte> bytes(header.begin(), header.end());
      bytes.insert(bytes.end(), payload.header.begin(), payload.header.end());
      bytes.insert(bytes.end(), payload.body.begin(), payload.body.end());
      peer->loop_->Post([peer, bytes = std::move(bytes), header_bytes = header.size()] {
        peer->Deliver(bytes, header_bytes);
      });
    }
    loop_->Post([status, done = std::move(done)] { done(status); });
  }

  void Close() override {
    if (closed_) return;
    if (const auto peer = peer_.lock()) {
      peer->loop_->Post([peer] {
        peer->CloseWith(absl::UnavailableError("the other end closed the connection"));
      });
    }
    CloseWith(absl::CancelledError("closed on this side"));
  }

  std::string Describe() const override { return description_; }

 private:
  void Deliver(std::span<const std::byte> bytes, size_t header_bytes) {
    if (closed_) return;
    const auto events = events_;
    if (events) events->OnMessage(bytes.first(header_bytes), bytes.subspan(header_bytes));
  }

  void CloseWith(const Status& reason) {
    if (std::exchange(closed_, true)) return;
    // Behind the `done`s that are posted already.
    loop_->Post([self = shared_from_this(), reason] {
      if (const auto events = std::exchange(self->events_, nullptr)) events->OnClosed(reason);
    });
  }

  const std::shared_ptr<EventLoop> loop_;
  const std::string description_;
  std::weak_ptr<LoopbackConnection> peer_;
  std::shared_ptr<ConnectionEvents> events_;
  bool closed_ = false;
};

// Who listens in this process.
struct Registry {
  struct Listener {
    std::shared_ptr<EventLoop> loop;
    std::shared_ptr<std::function<void(std::shared_ptr<LoopbackConnection>)>> accept;
  };
  std::mutex mutex;  // both below
  std::map<std::string, Listener> listeners;
  uint64_t next = 1;

  static Registry& Get() {
    static Registry* const registry = new Registry();  // threads may outlive main's objects
    return *registry;
  }
};

class LoopbackBackend : public Backend {
 public:
  explicit LoopbackBackend(LoopbackOptions options) : address_(std::move(options.name)) {}

  std::string name() const override { return "loopback"; }

  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    loop_ = loop;
    Registry& registry = Registry::Get();
    const std::lock_guard lock(registry.mutex);
    if (address_.empty()) address_ = fmt::format("loopback:{}", registry.next++);
    auto shared_accept = std::make_shared<std::function<void(std::shared_ptr<LoopbackConnection>)>>(
        [this, accept = std::move(accept)](const std::shared_ptr<LoopbackConnection>& connection) {
          Remember(connection);
          accept(connection);
        });
    accept_ = shared_accept;
    if (!registry.listeners.emplace(address_, Registry::Listener{loop, shared_accept}).second) {
      return AlreadyExists("the name {} is taken", address_);
    }
    listening_ = true;
    return address_;
  }

  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    Registry& registry = Registry::Get();
    Registry::Listener listener;
    {
      const std::lock_guard lock(registry.mutex);
      const auto found = registry.listeners.find(address);
      if (found == registry.listeners.end()) {
        return absl::UnavailableError("nobody listens at this name");
      }
      listener = found->second;
    }
    const auto here =
        std::make_shared<LoopbackConnection>(loop_, fmt::format("{} <-> {}", address_, address));
    const auto there = std::make_shared<LoopbackConnection>(
        listener.loop, fmt::format("{} <-> {}", address, address_));
    here->SetPeer(there);
    there->SetPeer(here);
    Remember(here);
    const bool posted = listener.loop->Post([there, weak = std::weak_ptr(listener.accept)] {
      const auto accept = weak.lock();
      accept ? (*accept)(there) : there->Close();
    });
    if (!posted) return absl::UnavailableError("the listener is being destroyed");
    return here;
  }

  void Shutdown(std::function<void()> done) override {
    accept_.reset();
    if (listening_) {
      Registry& registry = Registry::Get();
      const std::lock_guard lock(registry.mutex);
      registry.listeners.erase(address_);
    }
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) connection->Close();
    }
    loop_->Post(std::move(done));  // behind the connections' own last words
  }

 private:
  void Remember(const std::shared_ptr<LoopbackConnection>& connection) {
    std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
    connections_.push_back(connection);
  }

  std::string address_;
  bool listening_ = false;
  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<std::function<void(std::shared_ptr<LoopbackConnection>)>> accept_;
  std::vector<std::weak_ptr<LoopbackConnection>> connections_;
};

}  // namespace

std::unique_ptr<Backend> NewBackend(const LoopbackOptions& options) {
  return std::make_unique<LoopbackBackend>(options);
}

StatusOr<std::unique_ptr<Transport>> CreateTransport(const LoopbackOptions& options) {
  return internal::NewTransport(NewBackend(options));
}

}  // namespace longhaul::transport::loopback
