#include "transport/p2p/core/hub.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"

namespace longhaul::transport::internal {
namespace {

Status CheckOptions(const LinkKey& key, const LinkOptions& options) {
  if (key.run.value().empty() || key.run.value().size() > kMaxRunIdBytes) {
    return InvalidArgument("a run id has 1 to {} bytes, this one {}", kMaxRunIdBytes,
                           key.run.value().size());
  }
  if (options.credits == 0 || options.credits > kMaxCredits) {
    return InvalidArgument("a link has 1 to {} credits, {} were asked for", kMaxCredits,
                           options.credits);
  }
  if (options.heartbeat_interval < absl::Milliseconds(1) ||
      options.suspect_after < options.heartbeat_interval ||
      options.peer_timeout < options.suspect_after) {
    return InvalidArgument(
        "expected 1 ms <= heartbeat interval <= suspect after <= peer timeout, got {}, "
        "{} and {} ms",
        absl::ToDoubleMilliseconds(options.heartbeat_interval),
        absl::ToDoubleMilliseconds(options.suspect_after),
        absl::ToDoubleMilliseconds(options.peer_timeout));
  }
  return absl::OkStatus();
}

}  // namespace

Hub::Hub(std::shared_ptr<EventLoop> loop, std::unique_ptr<Backend> backend)
    : loop_(std::move(loop)),
      backend_(std::move(backend)),
      acceptor_(std::make_shared<Acceptor>(loop_)) {}

StatusOr<std::string> Hub::Start() {
  auto address =
      backend_->Start(loop_, [acceptor = acceptor_](std::shared_ptr<Connection> connection) {
        acceptor->Accept(std::move(connection));
      });
  if (!address.ok()) backend_.reset();
  listens_ = address.ok() && !address->empty();
  return address;
}

Status Hub::Check(const LinkKey& key, const LinkOptions& options) const {
  LH_RETURN_IF_ERROR(CheckOptions(key, options));
  return options.sealed ? absl::OkStatus() : backend_->CarriesPlainLinks();
}

StatusOr<std::vector<std::shared_ptr<void>>> Hub::LetCome(
    const std::vector<std::string>& addresses) {
  if (listens_) return std::vector{backend_->AdmitPeers(addresses)};
  return WaitAtAny(addresses);
}

StatusOr<std::vector<std::shared_ptr<void>>> Hub::WaitAtAny(
    const std::vector<std::string>& addresses) {
  // One meeting place is enough: an error counts only where all addresses fail.
  std::vector<std::shared_ptr<void>> waits;
  Status problem;
  for (const std::string& address : addresses) {
    StatusOr<std::shared_ptr<void>> wait = backend_->WaitAt(address);
    if (wait.ok()) {
      waits.push_back(*std::move(wait));
      continue;
    }
    problem = wait.status();
    LogWarning("nobody can be met at one of {} addresses: {}", addresses.size(), Message(problem));
  }
  if (waits.empty() && !problem.ok()) return problem;
  return waits;
}

void Hub::Expect(const LinkKey& key, std::string secret, std::shared_ptr<LinkHandler> handler,
                 const LinkOptions& options, Deadline deadline, OpenDone done) {
  if (const Status status = Check(key, options); !status.ok()) return done(status);
  StatusOr<std::vector<std::shared_ptr<void>>> waits = LetCome(options.peer_at);
  if (!waits.ok()) return done(waits.status());
  const auto pending = std::make_shared<Pending>(
      Pending{key, secret, std::move(handler), options, {}, std::move(done), *std::move(waits)});
  // A second Expect of the key fails in the acceptor; its end must not erase the first one.
  const bool known = expects_.contains(key);
  if (!known) expects_.emplace(key, pending);
  acceptor_->Expect(key, std::move(secret), options, deadline.time(),
                    [this, key, known, pending](StatusOr<OpenedLink> opened) {
                      if (!known) expects_.erase(key);
                      Open(*pending, /*dialled=*/false, std::move(opened));
                    });
}

void Hub::Dial(const std::vector<std::string>& addresses, const LinkKey& key, std::string secret,
               std::shared_ptr<LinkHandler> handler, const LinkOptions& options, Deadline deadline,
               OpenDone done) {
  if (const Status status = Check(key, options); !status.ok()) return done(status);
  if (dials_.contains(key)) {
    return done(AlreadyExists("{} is being dialled already; cancel that first", Describe(key)));
  }
  const auto pending = std::make_shared<Pending>(
      Pending{key, secret, std::move(handler), options, addresses, std::move(done)});
  // A backend may connect back from the other end of a connection.
  if (!addresses.empty()) pending->waits.push_back(backend_->AdmitPeers(addresses));
  const auto dialer =
      std::make_shared<Dialer>(loop_, backend_.get(),
                               DialOptions{.addresses = addresses,
                                           .key = key,
                                           .secret = std::move(secret),
                                           .credits = options.credits,
                                           .sealed = options.sealed,
                                           .deadline = deadline.time()},
                               [this, key, pending](StatusOr<OpenedLink> opened) {
                                 dials_.erase(key);
                                 Open(*pending, /*dialled=*/true, std::move(opened));
                               });
  dials_.emplace(key, std::pair(dialer, pending));
  dialer->Start();
}

void Hub::Readdress(const LinkKey& key, const std::vector<std::string>& addresses) {
  if (const auto dial = dials_.find(key); dial != dials_.end()) {
    dial->second.second->addresses = addresses;
    dial->second.second->waits = {backend_->AdmitPeers(addresses)};
    dial->second.first->Readdress(addresses);
  }
  for (auto& [link, admitted] : links_) {
    if (link->key() != key || !link->dials()) continue;
    admitted = backend_->AdmitPeers(addresses);
    link->ReaddressOnLoop(addresses);
  }
}

void Hub::Cancel(const LinkKey& key, std::string_view why) {
  const Status cancelled = absl::CancelledError(fmt::format("opening {}: {}", Describe(key), why));
  if (acceptor_->Cancel(key)) expects_.extract(key).mapped()->done(cancelled);
  if (auto dial = dials_.extract(key); !dial.empty()) {
    dial.mapped().first->Cancel();
    dial.mapped().second->done(cancelled);
  }
}

void Hub::Shutdown(std::function<void()> done) {
  std::set<LinkKey> keys;
  for (const auto& [key, pending] : expects_) keys.insert(key);
  for (const auto& [key, dial] : dials_) keys.insert(key);
  for (const LinkKey& key : keys) Cancel(key, "the transport is being destroyed");
  acceptor_->Shutdown();
  for (const auto& [link, admitted] : links_) {
    link->Close(Deadline::At(loop_->now() + kLinkLinger), /*drop_waiting=*/true);
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

void Hub::Open(Pending& pending, bool dialled, StatusOr<OpenedLink> opened) {
  if (!opened.ok()) return pending.done(opened.status());
  LinkCore::Init init{.key = pending.key,
                      .backend = backend_->name(),
                      .options = pending.options,
                      .handler = std::move(pending.handler),
                      .opened = *std::move(opened)};
  PrepareReturn(pending, dialled, &init);
  init.on_gone = [weak = weak_from_this()](LinkCore* link) {
    if (const auto self = weak.lock()) {
      self->links_.erase(link->shared_from_this());
      self->CheckEmpty();
    }
  };
  const auto core = std::make_shared<LinkCore>(loop_, std::move(init));
  links_[core] = dialled && !pending.waits.empty() ? pending.waits.front() : nullptr;
  if (!dialled) {
    const std::weak_ptr<LinkCore> weak = core;  // it lets go of its place when it ends
    acceptor_->Hold(
        pending.key, core->link_id(), pending.secret, pending.options,
        [weak] {
          const auto link = weak.lock();
          return link ? link->ReceivedOnLoop() : Received{};
        },
        [weak, waits = pending.waits](StatusOr<OpenedLink> again) {
          if (const auto link = weak.lock()) link->ResumeOnLoop(*std::move(again));
        });
  }
  core->StartOnLoop();
  pending.done(core);
}

void Hub::PrepareReturn(const Pending& pending, bool dialled, LinkCore::Init* init) {
  if (!dialled) {
    init->on_ending = [acceptor = acceptor_](LinkCore* link) {
      acceptor->Release(link->key(), link->link_id());
    };
    return;
  }
  DialOptions options{.addresses = pending.addresses,
                      .key = pending.key,
                      .secret = pending.secret,
                      .credits = pending.options.credits,
                      .sealed = pending.options.sealed,
                      .deadline = MonoTime::max()};  // the link knows when it is too late
  // What worked last time comes first.
  const auto worked = std::ranges::find(options.addresses, init->opened.address);
  std::rotate(options.addresses.begin(), worked, options.addresses.end());
  init->redial = std::move(options);
  init->dial_over = backend_.get();  // links end before it does
}

void Hub::CheckEmpty() {
  if (on_empty_ && links_.empty()) std::exchange(on_empty_, nullptr)();
}

}  // namespace longhaul::transport::internal
