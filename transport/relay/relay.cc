#include "transport/relay/relay.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/peer_log.h"
#include "base/unique_fd.h"
#include "proto/rpc/listener.h"
#include "transport/relay/pipe.h"
#include "transport/relay/socket.h"
#include "transport/relay/ticket.h"

namespace longhaul::relay {
namespace {

// An end that is gone without a word is noticed after about this time, also where it is to take
// something.
constexpr int kUserTimeoutMs = kJoinedKeepAlive.total_s() * 1000;

void Prepare(int fd) {
  PrepareSocket(fd, kJoinedKeepAlive);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
}

// The socket has room for it: nothing was sent before.
void Say(int fd, std::string_view words) {
  [[maybe_unused]] const ssize_t sent =
      ::send(fd, words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Say(int fd, RelayWord word) {
  const char letter = static_cast<char>(word);
  Say(fd, std::string_view(&letter, 1));
}

}  // namespace

class Relay::Desk : public std::enable_shared_from_this<Relay::Desk> {
 public:
  Desk(std::shared_ptr<EventLoop> loop, RelayOptions options)
      : loop_(std::move(loop)), options_(std::move(options)) {
    if (options_.scoped) scopes_.emplace();
  }

  StatusOr<std::string> Open() {
    LH_ASSIGN_OR_RETURN(listener_, Listener::Create(loop_, options_.listen,
                                                    [this](int fd) { Greet(UniqueFd(fd)); }));
    return listener_->address();
  }

  void Close() {
    if (listener_) listener_->StopListening();
    while (!guests_.empty()) Drop(guests_.begin()->second);
    while (!pairs_.empty()) Separate(pairs_.begin()->first);
    listener_.reset();
  }

  void Serve(std::vector<std::string> scopes) {
    scopes_.emplace(std::make_move_iterator(scopes.begin()), std::make_move_iterator(scopes.end()));
    std::vector<SharedGuest> waiting;
    for (const auto& [place, guest] : waiting_) {
      if (!IsServed(place.name)) waiting.push_back(guest);
    }
    for (const SharedGuest& guest : waiting) TurnAway(guest, RelayWord::kNobody);
    std::vector<PairId> pairs;
    for (const auto& [id, pair] : pairs_) {
      if (!IsServed(id.first)) pairs.push_back(id);
    }
    for (const PairId& id : pairs) Separate(id);
  }

  RelayStats stats() const {
    return {.waiting = waiting_count_.load(),
            .pipes = pipe_count_.load(),
            .joined = joined_.load(),
            .refused = refused_.load(),
            .bytes = bytes_.load()};
  }

 private:
  // A connection that is not joined.
  struct Guest {
    UniqueFd fd;
    std::string peer;
    std::string nonce, answer;
    std::optional<Claim> claim;  // it has shown a ticket, and waits; its name is in `answer`
    uint64_t number = 0;         // of those that wait: by time
    std::optional<EventLoop::TimerId> timer;
  };
  using SharedGuest = std::shared_ptr<Guest>;
  struct Pair {
    SharedGuest one, other;
    std::shared_ptr<Pipe> pipe;
  };
  using PairId = std::pair<std::string, uint64_t>;  // by name and time

  bool IsServed(std::string_view name) const {
    return !scopes_ || scopes_->contains(name.substr(0, kScopeBytes));
  }

  void Greet(UniqueFd fd) {
    const auto guest = std::make_shared<Guest>();
    guest->peer = PeerTextOf(fd.get());
    guest->nonce = RandomBytes(kNonceBytes);
    guest->fd = std::move(fd);
    Prepare(guest->fd.get());
    guests_[guest->fd.get()] = guest;
    if (!Watch(guest)) return;
    Say(guest->fd.get(), Greeting(guest->nonce));
  }

  bool Watch(const SharedGuest& guest) {
    const Status status =
        loop_->Watch(guest->fd.get(), EPOLLIN | EPOLLRDHUP,
                     [self = shared_from_this(), guest](uint32_t) { self->OnReadable(guest); });
    if (!status.ok()) Drop(guest);
    return status.ok();
  }

  void OnReadable(const SharedGuest& guest) {
    std::array<char, kAnswerBytes> bytes;
    const size_t missing = kAnswerBytes - guest->answer.size();
    // One that waits has nothing to say until it is joined.
    const size_t wanted = guest->claim ? 1 : missing;
    const ssize_t got = ::recv(guest->fd.get(), bytes.data(), wanted, MSG_DONTWAIT);
    if (got < 0 && WouldBlock()) return;
    if (got <= 0 || guest->claim) return Drop(guest);
    guest->answer.append(bytes.data(), static_cast<size_t>(got));
    if (guest->answer.size() == kAnswerBytes) Admit(guest);
  }

  void Admit(const SharedGuest& guest) {
    const auto now_s = static_cast<uint64_t>(absl::ToUnixSeconds(absl::Now()));
    const StatusOr<Claim> claim = CheckAnswer(options_.secret, guest->answer, guest->nonce, now_s);
    if (!claim.ok()) {
      ++refused_;
      LogAboutPeer(LogLevel::kWarn, guest->peer.substr(0, guest->peer.rfind(':')),
                   fmt::format("the relay refused {}: {}", guest->peer, Message(claim.status())));
      return TurnAway(guest, RelayWord::kRefused);
    }
    if (!IsServed(claim->name)) {
      ++refused_;
      LogAboutPeer(LogLevel::kDebug, guest->peer.substr(0, guest->peer.rfind(':')),
                   fmt::format("the relay refused {}: its ticket's epoch is over, or has not begun",
                               guest->peer));
      return TurnAway(guest, RelayWord::kNobody);
    }
    if (waiting_.size() >= options_.most_waiting || pairs_.size() >= options_.most_pipes) {
      LogAboutPeer(LogLevel::kWarn, "relay",
                   fmt::format("the relay is full: {} wait, {} pairs are joined", waiting_.size(),
                               pairs_.size()));
      return TurnAway(guest, RelayWord::kFull);
    }
    listener_->Admit(guest->peer);
    guest->claim = *claim;
    const Side peer_side = claim->side == Side::kDialler ? Side::kWaiter : Side::kDialler;
    // An older one may have died without a word.
    if (const SharedGuest peer = Newest(claim->name, peer_side)) return Join(peer, guest);
    while (Count(claim->name, claim->side) >= options_.most_of_a_name) {
      Drop(Oldest(claim->name, claim->side));
    }
    guest->number = next_++;
    waiting_.emplace(Place{std::string(claim->name), claim->side, guest->number}, guest);
    waiting_count_ = waiting_.size();
    if (claim->side == Side::kWaiter) return;
    guest->timer =
        loop_->AddTimer(loop_->now() + options_.patience, [self = shared_from_this(), guest] {
          guest->timer.reset();
          self->TurnAway(guest, RelayWord::kNobody);
        });
  }

  void TurnAway(const SharedGuest& guest, RelayWord word) {
    Say(guest->fd.get(), word);
    Drop(guest);
  }

  void Join(const SharedGuest& one, const SharedGuest& other) {
    const PairId id(one->claim->name, next_++);
    const PairId oldest(id.first, 0);
    while (std::distance(pairs_.lower_bound(oldest), pairs_.lower_bound(id)) >=
           static_cast<std::ptrdiff_t>(options_.most_of_a_name)) {
      Separate(pairs_.lower_bound(oldest)->first);
    }
    Pair& pair = pairs_[id];
    pair = {one, other, nullptr};
    pipe_count_ = pairs_.size();
    ++joined_;
    for (const SharedGuest& guest : {one, other}) {
      Forget(guest);
      Say(guest->fd.get(), RelayWord::kJoined);
    }
    pair.pipe = std::make_shared<Pipe>(
        loop_, one->fd.get(), other->fd.get(), [this](size_t bytes) { bytes_ += bytes; },
        [self = shared_from_this(), id] { self->Separate(id); });
    pair.pipe->Start();
  }

  void Separate(const PairId& id) {
    const auto found = pairs_.find(id);
    if (found == pairs_.end()) return;
    const Pair pair = std::move(found->second);
    pairs_.erase(found);
    pipe_count_ = pairs_.size();
    pair.pipe->Stop();
    for (const SharedGuest& guest : {pair.one, pair.other}) listener_->Cut(guest->peer);
  }

  // Out of all that is known of guests; its descriptor stays open.
  void Forget(const SharedGuest& guest) {
    if (guest->timer) loop_->CancelTimer(*guest->timer);
    guest->timer.reset();
    loop_->Unwatch(guest->fd.get());
    guests_.erase(guest->fd.get());
    if (guest->claim)
      waiting_.erase({std::string(guest->claim->name), guest->claim->side, guest->number});
    waiting_count_ = waiting_.size();
  }

  // By value: the caller's pointer may be in a map or in a callback, which Forget empties.
  void Drop(SharedGuest guest) {
    Forget(guest);
    listener_->Cut(guest->peer);
    guest.reset();
  }

  // By name, side and time.
  struct Place {
    std::string name;
    Side side = Side::kDialler;
    uint64_t number = 0;
    auto operator<=>(const Place&) const = default;
  };
  using Places = std::map<Place, SharedGuest>;
  std::pair<Places::iterator, Places::iterator> Of(std::string_view name, Side side) {
    return {waiting_.lower_bound({std::string(name), side, 0}),
            waiting_.upper_bound({std::string(name), side, UINT64_MAX})};
  }
  SharedGuest Oldest(std::string_view name, Side side) {
    const auto [begin, end] = Of(name, side);
    return begin == end ? nullptr : begin->second;
  }
  SharedGuest Newest(std::string_view name, Side side) {
    const auto [begin, end] = Of(name, side);
    return begin == end ? nullptr : std::prev(end)->second;
  }
  size_t Count(std::string_view name, Side side) {
    const auto [begin, end] = Of(name, side);
    return static_cast<size_t>(std::distance(begin, end));
  }

  const std::shared_ptr<EventLoop> loop_;
  const RelayOptions options_;
  std::unique_ptr<Listener> listener_;
  std::map<int, SharedGuest> guests_;  // those that wait among them
  Places waiting_;
  std::map<PairId, Pair> pairs_;
  std::optional<std::set<std::string, std::less<>>> scopes_;  // nullopt: all are served
  uint64_t next_ = 1;
  std::atomic<size_t> waiting_count_ = 0, pipe_count_ = 0;
  std::atomic<uint64_t> joined_ = 0, refused_ = 0, bytes_ = 0;
};

Relay::Relay(std::shared_ptr<EventLoopThread> thread, std::shared_ptr<Desk> desk,
             std::string address)
    : thread_(std::move(thread)), desk_(std::move(desk)), address_(std::move(address)) {}

StatusOr<std::unique_ptr<Relay>> Relay::Start(const RelayOptions& options) {
  if (options.secret.size() != kSecretBytes) {
    return InvalidArgument("a relay's secret has {} bytes, this one {}", kSecretBytes,
                           options.secret.size());
  }
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<EventLoopThread> thread,
                      EventLoopThread::Start("relay"));
  const auto desk = std::make_shared<Desk>(thread->loop(), options);
  StatusOr<std::string> address;
  thread->RunAndWait([&] { address = desk->Open(); });
  if (!address.ok()) return address.status();
  return std::unique_ptr<Relay>(new Relay(thread, desk, *std::move(address)));
}

Relay::~Relay() {
  thread_->RunAndWait([this] { desk_->Close(); });
}

void Relay::Serve(std::vector<std::string> scopes) {
  thread_->loop()->Post(
      [desk = desk_, scopes = std::move(scopes)]() mutable { desk->Serve(std::move(scopes)); });
}

RelayStats Relay::stats() const {
  return desk_->stats();
}

}  // namespace longhaul::relay
