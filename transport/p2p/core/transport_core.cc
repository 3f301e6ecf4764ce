#include "transport/p2p/core/transport_core.h"

#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/event_loop.h"
#include "base/notification.h"
#include "transport/p2p/core/hub.h"

namespace longhaul::transport::internal {
namespace {

// Longer than of other loops: UCX may wait for the driver of a GPU.
constexpr absl::Duration kLinksHang = absl::Seconds(30);

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
  void GrowCredits(uint32_t credits) override { core_->GrowCredits(credits); }
  LinkStats stats() const override { return core_->stats(); }
  std::string Describe() const override { return core_->description(); }

 private:
  const std::shared_ptr<EventLoopThread> thread_;
  const std::shared_ptr<LinkCore> core_;
  std::atomic<bool> closed_{false};
};

// The link that a caller gets for the one on the loop.
Hub::OpenDone WithHandle(std::weak_ptr<EventLoopThread> thread, Transport::OpenDone done) {
  return [weak = std::move(thread), done = std::move(done)](auto core) {
    if (!core.ok()) return done(core.status());
    const auto held = weak.lock();
    LH_CHECK(held != nullptr, "a link opened after its transport was gone");
    done(std::make_shared<LinkHandle>(held, *std::move(core)));
  };
}

class TransportHandle : public Transport {
 public:
  TransportHandle(std::shared_ptr<EventLoopThread> thread, std::shared_ptr<Hub> hub,
                  std::string address)
      : thread_(std::move(thread)), hub_(std::move(hub)), address_(std::move(address)) {}

  ~TransportHandle() override {
    LH_CHECK(!thread_->loop()->InLoop(), "a transport must not be destroyed in its own callback");
    Notification gone;
    thread_->loop()->Post([&] { hub_->Shutdown([&gone] { gone.Notify(); }); });
    gone.Wait();
  }

  const std::string& address() const override { return address_; }

  void Expect(const LinkKey& key, std::string_view secret, std::shared_ptr<LinkHandler> handler,
              const LinkOptions& options, Deadline deadline, OpenDone done) override {
    thread_->loop()->Post([hub = hub_, key, secret = std::string(secret),
                           handler = std::move(handler), options, deadline,
                           done = WithHandle(thread_, std::move(done))] {
      hub->Expect(key, secret, handler, options, deadline, done);
    });
  }

  void Dial(const std::vector<std::string>& addresses, const LinkKey& key, std::string_view secret,
            std::shared_ptr<LinkHandler> handler, const LinkOptions& options, Deadline deadline,
            OpenDone done) override {
    thread_->loop()->Post([hub = hub_, addresses, key, secret = std::string(secret),
                           handler = std::move(handler), options, deadline,
                           done = WithHandle(thread_, std::move(done))] {
      hub->Dial(addresses, key, secret, handler, options, deadline, done);
    });
  }

  void Readdress(const LinkKey& key, const std::vector<std::string>& addresses) override {
    thread_->loop()->Post([hub = hub_, key, addresses] { hub->Readdress(key, addresses); });
  }

  void Cancel(const LinkKey& key) override {
    thread_->loop()->Post([hub = hub_, key] { hub->Cancel(key, "cancelled"); });
  }

 private:
  const std::shared_ptr<EventLoopThread> thread_;
  const std::shared_ptr<Hub> hub_;
  const std::string address_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> NewTransport(std::unique_ptr<Backend> backend) {
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<EventLoopThread> thread,
                      EventLoopThread::Start("links", kLinksHang));
  auto hub = std::make_shared<Hub>(thread->loop(), std::move(backend));
  StatusOr<std::string> address;
  thread->RunAndWait([&] { address = hub->Start(); });
  if (!address.ok()) return address.status();
  return std::make_unique<TransportHandle>(thread, std::move(hub), *std::move(address));
}

}  // namespace longhaul::transport::internal
