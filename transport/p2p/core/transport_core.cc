#include "transport/p2p/core/transport_core.h"

#include <fmt/core.h>

#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "transport/p2p/core/event_loop.h"
#include "transport/p2p/core/handshake.h"
#include "transport/p2p/core/link_core.h"
#include "transport/p2p/core/notification.h"

namespace longhaul::transport::internal {
namespace {

// What the caller holds: keeps the loop's thread alive, so that a `done` always has a place to run.
class LinkHandle : public Link {
 public:
  LinkHandle(std::shared_ptr<EventLoopThread> thread, std::shared_ptr<LinkCore> core)
      : thread_(std::move(thread)), core_(std::move(core)) {}
  ~LinkHandle() override {
    if (!closed_.load()) core_->Close(Deadline::After(kLinkLinger), /*drop_waiting=*/true);
  }

  const LinkKey& key() const override { return core_->key(); }
  void Send(Lane lane, const FrameView& frame, SendDone done) override {
    core_->Send(lane, frame, std::move(done));
  }
  void Close(Deadline deadline) override {
    closed_.store(true);
    core_->Close(deadline, /*drop_waiting=*/false);
  }
  LinkStats stats() const override { return core_->stats(); }
  std::string Describe() const override { return core_->description(); }

 private:
  const std::shared_ptr<EventLoopThread> thread_;
  const std::shared_ptr<LinkCore> core_;
  std::atomic<bool> closed_{false};
};

Status CheckOptions(const LinkKey& key, const LinkOptions& options) {
  if (key.run.value().empty() || key.run.value().size() > kMaxRunIdBytes) {
    return absl::InvalidArgumentError(fmt::format("a run id has 1 to {} bytes, this one {}",
                                                  kMaxRunIdBytes, key.run.value().size()));
  }
  if (options.credits == 0 || options.credits > kMaxCredits) {
    return absl::InvalidArgumentError(
        fmt::format("a link has 1 to {} credits, {} were asked for", kMaxCredits, options.credits));
  }
  if (options.heartbeat_interval < absl::Milliseconds(1) ||
      options.suspect_after < options.heartbeat_interval ||
      options.peer_timeout < options.suspect_after) {
    return absl::InvalidArgumentError(
        fmt::format("expected 1 ms <= heartbeat interval <= suspect after <= peer timeout, got {}, "
                    "{} and {} ms",
                    absl::ToDoubleMilliseconds(options.heartbeat_interval),
                    absl::ToDoubleMilliseconds(options.suspect_after),
                    absl::ToDoubleMilliseconds(options.peer_timeout)));
  }
  return absl::OkStatus();
}

// The transport's state, on the loop.
class TransportCore : public std::enable_shared_from_this<TransportCore> {
 public:
  TransportCore(const std::shared_ptr<EventLoopThread>& thread, std::unique_ptr<Backend> backend)
      : thread_(thread),
        loop_(thread->loop()),
        backend_(std::move(backend)),
        acceptor_(std::make_shared<Acceptor>(loop_)) {}

  StatusOr<std::string> Start() {
    auto address = backend_->Start(loop_, [acceptor = acceptor_](std::shared_ptr<Channel> channel) {
      acceptor->Accept(std::move(channel));
    });
    if (!address.ok()) backend_.reset();
    return address;
  }

  void Expect(const LinkKey& key, std::string secret, std::shared_ptr<LinkHandler> handler,
              const LinkOptions& options, Deadline deadline, Transport::OpenDone done) {
    if (const Status status = CheckOptions(key, options); !status.ok()) return done(status);
    const auto pending = std::make_shared<Pending>(key, std::move(handler), options,
                                                   /*dialled=*/false, std::move(done));
    const bool known = expects_.contains(key);
    if (!known) expects_.emplace(key, pending);
    acceptor_->Expect(key, std::move(secret), options.credits, deadline.time(),
                      [this, key, known, pending](StatusOr<OpenedLink> opened) {
                        if (!known) expects_.erase(key);
                        Open(*pending, std::move(opened));
                      });
  }

  void Dial(const std::vector<std::string>& addresses, const LinkKey& key, std::string secret,
            std::shared_ptr<LinkHandler> handler, const LinkOptions& options, Deadline deadline,
            Transport::OpenDone done) {
    if (const Status status = CheckOptions(key, options); !status.ok()) return done(status);
    if (dials_.contains(key)) {
      return done(absl::AlreadyExistsError(
          fmt::format("{} is being dialled already; cancel that first", Describe(key))));
    }
    const auto pending = std::make_shared<Pending>(key, std::move(handler), options,
                                                   /*dialled=*/true, std::move(done));
    const auto dialer = std::make_shared<Dialer>(
        loop_, backend_.get(), addresses, key, std::move(secret), options.credits, deadline.time(),
        [this, key, pending](StatusOr<OpenedLink> opened) {
          dials_.erase(key);
          Open(*pending, std::move(opened));
        });
    dials_.emplace(key, std::pair(dialer, pending));
    dialer->Start();
  }

  void Cancel(const LinkKey& key, std::string_view why) {
    const Status cancelled =
        absl::CancelledError(fmt::format("opening {}: {}", Describe(key), why));
    if (acceptor_->Cancel(key)) expects_.extract(key).mapped()->done(cancelled);
    if (auto dial = dials_.extract(key); !dial.empty()) {
      dial.mapped().first->Cancel();
      dial.mapped().second->done(cancelled);
    }
  }

  // Ends everything; `done` when nothing is left on the loop.
  void Shutdown(std::function<void()> done) {
    std::set<LinkKey> keys;
    for (const auto& [key, pending] : expects_) keys.insert(key);
    for (const auto& [key, dial] : dials_) keys.insert(key);
    for (const LinkKey& key : keys) Cancel(key, "the transport is being destroyed");
    acceptor_->Shutdown();
    for (const auto& link : links_) {
      link->Close(Deadline::After(kLinkLinger), /*drop_waiting=*/true);
    }
    on_empty_ = [this, done = std::move(done)] {
      backend_->Shutdown([self = shared_from_this(), done] {
        self->backend_.reset();
        done();
      });
    };
    // Behind the links' own tasks.
    loop_->Post([self = shared_from_this()] { self->CheckEmpty(); });
  }

 private:
  struct Pending {
    Pending(LinkKey k, std::shared_ptr<LinkHandler> h, const LinkOptions& o, bool d,
            Transport::OpenDone open_done)
        : key(std::move(k)),
          handler(std::move(h)),
          options(o),
          dialled(d),
          done(std::move(open_done)) {}
    LinkKey key;
    std::shared_ptr<LinkHandler> handler;
    LinkOptions options;
    bool dialled;
    Transport::OpenDone done;
  };

  void Open(Pending& pending, StatusOr<OpenedLink> opened) {
    if (!opened.ok()) return pending.done(opened.status());
    LinkCore::Init init{.key = pending.key,
                        .link_id = opened->link_id,
                        .version = opened->version,
                        .backend = backend_->name(),
                        .options = pending.options,
                        .handler = std::move(pending.handler),
                        .channels = std::move(opened->channels),
                        .peer_credits = opened->peer_credits,
                        .peer_is_open = pending.dialled};
    init.on_gone = [weak = weak_from_this()](LinkCore* link) {
      if (const auto self = weak.lock()) {
        self->links_.erase(link->shared_from_this());
        self->CheckEmpty();
      }
    };
    const auto core = std::make_shared<LinkCore>(loop_, std::move(init));
    links_.insert(core);
    core->StartOnLoop();
    const auto thread = thread_.lock();
    LH_CHECK(thread != nullptr, "a link opened after its transport was gone");
    pending.done(std::make_shared<LinkHandle>(thread, core));
  }

  void CheckEmpty() {
    if (on_empty_ && links_.empty()) std::exchange(on_empty_, nullptr)();
  }

  const std::weak_ptr<EventLoopThread> thread_;
  const std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<Backend> backend_;
  const std::shared_ptr<Acceptor> acceptor_;
  std::map<LinkKey, std::shared_ptr<Pending>> expects_;
  std::map<LinkKey, std::pair<std::shared_ptr<Dialer>, std::shared_ptr<Pending>>> dials_;
  std::set<std::shared_ptr<LinkCore>> links_;
  std::function<void()> on_empty_;
};

class TransportHandle : public Transport {
 public:
  TransportHandle(std::shared_ptr<EventLoopThread> thread, std::shared_ptr<TransportCore> core,
                  std::string address)
      : thread_(std::move(thread)), core_(std::move(core)), address_(std::move(address)) {}

  ~TransportHandle() override {
    LH_CHECK(!thread_->loop()->InLoop(), "a transport must not be destroyed in its own callback");
    Notification gone;
    thread_->loop()->Post([&] { core_->Shutdown([&gone] { gone.Notify(); }); });
    gone.Wait();
  }

  const std::string& address() const override { return address_; }

  void Expect(const LinkKey& key, std::string_view secret, std::shared_ptr<LinkHandler> handler,
              const LinkOptions& options, Deadline deadline, OpenDone done) override {
    thread_->loop()->Post(
        [core = core_, key, secret = std::string(secret), handler = std::move(handler), options,
         deadline,
         done = std::move(done)] { core->Expect(key, secret, handler, options, deadline, done); });
  }

  void Dial(const std::vector<std::string>& addresses, const LinkKey& key, std::string_view secret,
            std::shared_ptr<LinkHandler> handler, const LinkOptions& options, Deadline deadline,
            OpenDone done) override {
    thread_->loop()->Post([core = core_, addresses, key, secret = std::string(secret),
                           handler = std::move(handler), options, deadline,
                           done = std::move(done)] {
      core->Dial(addresses, key, secret, handler, options, deadline, done);
    });
  }

  void Cancel(const LinkKey& key) override {
    thread_->loop()->Post([core = core_, key] { core->Cancel(key, "cancelled"); });
  }

 private:
  const std::shared_ptr<EventLoopThread> thread_;
  const std::shared_ptr<TransportCore> core_;
  const std::string address_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> NewTransport(std::unique_ptr<Backend> backend) {
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<EventLoopThread> thread, EventLoopThread::Start());
  auto core = std::make_shared<TransportCore>(thread, std::move(backend));
  StatusOr<std::string> address;
  thread->RunAndWait([&] { address = core->Start(); });
  if (!address.ok()) return address.status();
  return std::make_unique<TransportHandle>(thread, std::move(core), *std::move(address));
}

}  // namespace longhaul::transport::internal
