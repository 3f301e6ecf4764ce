#include "transport/p2p/relay/backend.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/log.h"
#include "base/peer_log.h"
#include "base/status.h"
#include "transport/p2p/core/transport_core.h"
#include "transport/p2p/relay/connection.h"
#include "transport/relay/ticket.h"

namespace longhaul::transport::relay {
namespace {

using internal::Connection;
using longhaul::relay::ParseWay;
using longhaul::relay::Side;
using longhaul::relay::Way;

// So many connections wait for who dials, because a link takes two at once.
constexpr size_t kSpares = 2;
constexpr absl::Duration kFirstPause = absl::Milliseconds(50), kLongestPause = absl::Seconds(1);
// One link opens or comes back seldom. A relay that joins somebody sooner than so after the last
// one is made to wait, or it fills the acceptor with guests and leaves no room for other relays'.
constexpr absl::Duration kBetweenLinks = absl::Seconds(1);

struct Place {
  HostPort address;
  Way way;
};

// What a relay's connections need, while the backend or somebody who waits is there.
struct Shared {
  std::shared_ptr<EventLoop> loop;
  internal::Backend::Accept accept;
  std::shared_ptr<stream::ConnectionTable> table = std::make_shared<stream::ConnectionTable>();
  bool shutting_down = false;
};

// Keeps kSpares connections waiting at a relay until it is stopped.
class Waiter : public std::enable_shared_from_this<Waiter> {
 public:
  // `between_links`: after so long without anybody the next is taken for a link that opens.
  Waiter(std::shared_ptr<Shared> shared, Place place, absl::Duration between_links)
      : shared_(std::move(shared)),
        place_(std::move(place)),
        between_links_(between_links),
        pause_(kFirstPause) {}

  void Fill() {
    while (!stopped_ && !shared_->shutting_down && spares_.size() < kSpares && !timer_) Add();
  }

  void Stop() {
    stopped_ = true;
    if (timer_) shared_->loop->CancelTimer(*timer_);
    timer_.reset();
    for (const auto& spare : std::exchange(spares_, {})) spare->Close();
  }

 private:
  // Events of a waiting connection: all it can do is end before anybody has come.
  class Events : public internal::ConnectionEvents {
   public:
    Events(std::weak_ptr<Waiter> waiter, std::weak_ptr<RelayedConnection> spare)
        : waiter_(std::move(waiter)), spare_(std::move(spare)) {}
    void OnMessage(std::span<const std::byte> /*header*/,
                   std::span<const std::byte> /*payload*/) override {}
    void OnClosed(const Status& reason) override {
      if (const auto waiter = waiter_.lock()) waiter->Lost(spare_.lock(), reason);
    }

   private:
    const std::weak_ptr<Waiter> waiter_;
    const std::weak_ptr<RelayedConnection> spare_;
  };

  void Add() {
    const auto spare = RelayedConnection::Start(
        shared_->loop, shared_->table, place_.address, place_.way, Side::kWaiter,
        [weak = weak_from_this()](const std::shared_ptr<RelayedConnection>& joined) {
          if (const auto self = weak.lock()) self->Joined(joined);
        });
    spare->SetEvents(std::make_shared<Events>(weak_from_this(), spare));
    spares_.push_back(spare);
  }

  void Joined(const std::shared_ptr<RelayedConnection>& spare) {
    if (std::erase(spares_, spare) == 0) return;
    said_ = false;
    shared_->accept(spare);
    const MonoTime now = shared_->loop->now();
    const bool is_first = !joined_at_ || now - *joined_at_ >= between_links_;
    joined_at_ = now;
    if (!is_first) return FillLater();
    pause_ = kFirstPause;
    Fill();
  }

  void Lost(const std::shared_ptr<RelayedConnection>& spare, const Status& reason) {
    std::erase(spares_, spare);
    if (stopped_ || shared_->shutting_down) return;
    if (!std::exchange(said_, true)) {
      LogAboutPeer(LogLevel::kWarn, longhaul::ToString(place_.address),
                   "nobody can be met at the relay " + longhaul::ToString(place_.address) + ": " +
                       std::string(Message(reason)) + "; trying again");
    }
    FillLater();
  }

  // The next time it takes longer.
  void FillLater() {
    if (timer_) return;
    timer_ = shared_->loop->AddTimer(shared_->loop->now() + pause_, [self = shared_from_this()] {
      self->timer_.reset();
      self->Fill();
    });
    pause_ = std::min(2 * pause_, kLongestPause);
  }

  const std::shared_ptr<Shared> shared_;
  const Place place_;
  const absl::Duration between_links_;
  absl::Duration pause_;
  std::optional<MonoTime> joined_at_;  // the last one
  bool stopped_ = false;
  bool said_ = false;  // that the relay does not let it wait
  std::vector<std::shared_ptr<RelayedConnection>> spares_;
  std::optional<EventLoop::TimerId> timer_;
};

class RelayBackend : public internal::Backend {
 public:
  RelayBackend(RelayedOptions options, std::string own_way)
      : options_(std::move(options)), own_way_(std::move(own_way)) {}

  std::string name() const override { return "relay"; }

  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    shared_->loop = loop;
    shared_->table->resolver = std::make_shared<stream::Resolver>(loop);
    shared_->accept = std::move(accept);
    if (own_way_.empty()) return std::string();
    // Many links come there.
    LH_ASSIGN_OR_RETURN(own_wait_, WaitAt(own_way_, absl::ZeroDuration()));
    return own_way_;
  }

  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    LH_ASSIGN_OR_RETURN(Place place, PlaceOf(address));
    return RelayedConnection::Start(shared_->loop, shared_->table, place.address,
                                    std::move(place.way), Side::kDialler, nullptr);
  }

  StatusOr<std::shared_ptr<void>> WaitAt(const std::string& address) override {
    return WaitAt(address, kBetweenLinks);
  }

  Status CarriesPlainLinks() const override {
    if (!own_way_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "a relay carries encrypted links alone, and this one is to be plain");
  }

  void Shutdown(std::function<void()> done) override {
    shared_->shutting_down = true;
    own_wait_.reset();
    shared_->table->connections.CloseAll(
        [loop = shared_->loop, done = std::move(done)] { loop->Post(done); });
  }

 private:
  StatusOr<std::shared_ptr<void>> WaitAt(const std::string& address, absl::Duration between_links) {
    LH_ASSIGN_OR_RETURN(Place place, PlaceOf(address));
    const auto waiter = std::make_shared<Waiter>(shared_, std::move(place), between_links);
    waiter->Fill();
    return std::shared_ptr<void>(waiter.get(), [waiter](void*) { waiter->Stop(); });
  }

  StatusOr<Place> PlaceOf(const std::string& text) const {
    LH_ASSIGN_OR_RETURN(Way way, ParseWay(text));
    std::string address = way.address;
    if (address.starts_with(':')) {
      LH_ASSIGN_OR_RETURN(HostPort coordinator, ParseHostPort(options_.coordinator()));
      coordinator.port = 0;
      const std::string host = longhaul::ToString(coordinator);
      address = host.substr(0, host.rfind(':')) + address;
    }
    LH_ASSIGN_OR_RETURN(HostPort parsed, ParseHostPort(address));
    return Place{std::move(parsed), std::move(way)};
  }

  const RelayedOptions options_;
  const std::string own_way_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<void> own_wait_;
};

}  // namespace

std::unique_ptr<internal::Backend> NewBackend(const RelayedOptions& options,
                                              const std::string& own_way) {
  return std::make_unique<RelayBackend>(options, own_way);
}

StatusOr<std::unique_ptr<Transport>> CreateTransport(const RelayedOptions& options) {
  return internal::NewTransport(NewBackend(options));
}

}  // namespace longhaul::transport::relay
