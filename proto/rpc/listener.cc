#include "proto/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/address.h"
#include "base/log.h"
#include "base/peer_log.h"

namespace longhaul {
namespace {

// A crowd may come within moments. What the kernel does not keep would try again after seconds.
constexpr int kBacklog = 1024;
constexpr int kAcceptsAtOnce = 16;
// What a stranger may have under way, so that little comes between two looks at how much it was.
// The window grows again when it is let in.
constexpr int kStrangerWindowBytes = 4 << 10;
constexpr int kWindowBytes = 1 << 30;
constexpr absl::Duration kPause = absl::Milliseconds(200);

struct FreeAddrinfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

std::string TextOf(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return fmt::format("{}:{}", host, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {  // as gRPC has it
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], host, sizeof(host));
    return fmt::format("{}:{}", host, ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  return fmt::format("[{}]:{}", host, ntohs(v6.sin6_port));
}

// Whether the other end has closed the connection already. Who floods a port does not wait, and
// gRPC would begin a handshake for each.
bool IsGone(int fd) {
  pollfd ready{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return poll(&ready, 1, 0) != 0;
}

Status CannotListen(const std::string& address, int error) {
  if (error == EADDRINUSE) {
    return AlreadyExists(
        "cannot listen at {}: the port is in use; choose another one, or 0 for any", address);
  }
  if (error == EADDRNOTAVAIL) {
    return FailedPrecondition("cannot listen at {}: it is not an address of this host", address);
  }
  return FromErrno(fmt::format("cannot listen at {}", address), error);
}

// A listening socket and where it really listens.
StatusOr<std::pair<int, std::string>> Bind(const std::string& address) {
  LH_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(parsed.host.c_str(), fmt::format("{}", parsed.port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, FreeAddrinfo> owner(found);
  if (code != 0 || found == nullptr) {
    return InvalidArgument("cannot listen at {}: {}", address, gai_strerror(code));
  }
  // A name such as localhost may have both kinds of address. Take the kind that most clients dial.
  const addrinfo* chosen = found;
  while (chosen != nullptr && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
  if (chosen == nullptr) chosen = found;
  const int fd = socket(chosen->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return FromErrno("cannot make a socket", errno);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, chosen->ai_addr, chosen->ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    const Status status = CannotListen(address, errno);
    close(fd);
    return status;
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  return std::pair(fd, TextOf(bound));
}

}  // namespace

std::string PeerTextOf(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  return TextOf(peer);
}

std::string PeerText(const std::string& grpc_peer) {
  const size_t colon = grpc_peer.find(':');
  std::string text = grpc_peer.substr(colon == std::string::npos ? 0 : colon + 1);
  for (const auto& [code, character] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    const size_t at = text.find(code);
    if (at != std::string::npos) text.replace(at, std::strlen(code), character);
  }
  // gRPC names the interface of a link-local address: "[fe80::1%25..2]:4711".
  const size_t zone = text.find('%');
  if (zone != std::string::npos) text.erase(zone, text.find(']', zone) - zone);
  return text;
}

StatusOr<std::unique_ptr<Listener>> Listener::Create(std::shared_ptr<EventLoop> loop,
                                                     const std::string& address,
                                                     HandOver hand_over) {
  LH_ASSIGN_OR_RETURN(auto bound, Bind(address));
  std::unique_ptr<Listener> listener(
      new Listener(std::move(loop), bound.first, std::move(bound.second), std::move(hand_over)));
  LH_RETURN_IF_ERROR(listener->Listen());
  return listener;
}

Listener::Listener(std::shared_ptr<EventLoop> loop, int fd, std::string address, HandOver hand_over)
    : loop_(std::move(loop)),
      address_(std::move(address)),
      hand_over_(std::move(hand_over)),
      fd_(fd) {}

Listener::~Listener() {
  StopListening();
  CutAll();
}

Status Listener::Listen() {
  return loop_->Watch(fd_, EPOLLIN, [this](uint32_t) { AcceptSome(); });
}

void Listener::StopListening() {
  if (pause_timer_) loop_->CancelTimer(*pause_timer_);
  pause_timer_.reset();
  if (fd_ < 0) return;
  loop_->Unwatch(fd_);
  close(std::exchange(fd_, -1));
}

void Listener::AcceptSome() {
  for (int i = 0; i < kAcceptsAtOnce && fd_ >= 0; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const int fd =
        accept4(fd_, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Take(fd, TextOf(peer));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return Pause(errno);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// What is ready and cannot be taken would keep the loop from sleeping.
void Listener::Pause(int error) {
  LogAboutPeer(LogLevel::kWarn, address_,
               fmt::format("{}: cannot accept a connection: {}", address_, std::strerror(error)));
  loop_->Unwatch(fd_);
  pause_timer_ = loop_->AddTimer(Now() + kPause, [this] {
    pause_timer_.reset();
    if (const Status status = Listen(); !status.ok()) LogError("{}", Message(status));
  });
}

void Listener::Take(int fd, std::string peer) {
  if (strangers_.size() < kMaxStrangers) return Begin(fd, std::move(peer));
  waiting_.push_back({fd, std::move(peer)});
  ServeWaiting();
}

// The first to be lost may have been too slow.
bool Listener::IsCrowd() const {
  return lost_ < kMaxStrangers / 4 || known_ >= lost_;
}

void Listener::StrangerLeft(bool is_known) {
  ++(is_known ? known_ : lost_);
  if (strangers_.size() < kMaxStrangers / 2) known_ = lost_ = 0;
}

std::pair<Listener::Connections::iterator, MonoTime> Listener::FirstTurn() {
  std::pair first(strangers_.end(), MonoTime::max());
  for (auto one = strangers_.begin(); one != strangers_.end(); ++one) {
    const MonoTime ends = one->since + (one->has_spoken ? kTalkingStrangerTurn : kStrangerTurn);
    if (ends < first.second) first = {one, ends};
  }
  return first;
}

void Listener::ServeWaiting() {
  if (is_serving_) return;  // a stranger that goes for another one calls this
  is_serving_ = true;
  while (!waiting_.empty()) {
    if (strangers_.size() >= kMaxStrangers) {
      const bool is_crowd = IsCrowd() && waiting_.size() <= kMaxWaitingStrangers;
      const auto [first, turn_ends] =
          is_crowd ? FirstTurn() : std::pair(strangers_.begin(), MonoTime());
      if (Now() < turn_ends) {
        if (turn_timer_ && turn_ends < turn_timer_->first) {
          loop_->CancelTimer(*std::exchange(turn_timer_, std::nullopt));
        }
        if (!turn_timer_) {
          turn_timer_ = loop_->AddTimer(turn_ends, [this] {
            turn_timer_.reset();
            ServeWaiting();
          });
        }
        break;
      }
      Forget(first);
    }
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    Begin(next.fd, std::move(next.peer));
  }
  is_serving_ = false;
}

void Listener::Begin(int fd, std::string peer) {
  if (IsGone(fd)) {
    close(fd);
    return;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &kStrangerWindowBytes, sizeof(int));
  const int second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const auto connection = strangers_.insert(
      strangers_.end(), {.peer = std::move(peer), .fd = second, .since = Now(), .timer = {}});
  const auto on_event = [this, connection](uint32_t events) { OnEvent(connection, events); };
  // Edges: told whenever more has come, although it is gRPC that reads.
  if (second < 0 || !loop_->Watch(second, EPOLLIN | EPOLLET, on_event).ok()) {
    close(fd);
    if (second >= 0) close(second);
    strangers_.erase(connection);
    return;
  }
  connection->timer = loop_->AddTimer(Now() + kStrangerLimit, [this, connection] {
    if (connection->stranger) Forget(connection);
  });
  by_peer_[connection->peer] = connection;
  hand_over_(fd);
}

void Listener::OnEvent(Connections::iterator connection, uint32_t events) {
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Forget(connection);
  if (!connection->stranger) return;
  tcp_info info{};
  socklen_t size = sizeof(info);
  getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  connection->has_spoken = info.tcpi_bytes_received > 0;
  if (info.tcpi_bytes_received <= kMaxStrangerBytes) return;
  // In the loop's next round: it may have been let in already by a task that waits, and only then
  // have said so much.
  loop_->CancelTimer(connection->timer);
  connection->timer = loop_->AddTimer(Now(), [this, connection] { Forget(connection); });
}

void Listener::Forget(Connections::iterator connection) {
  loop_->CancelTimer(connection->timer);
  loop_->Unwatch(connection->fd);
  shutdown(connection->fd, SHUT_RDWR);  // gRPC's descriptor sees it too, and is closed by gRPC
  close(connection->fd);
  const auto found = by_peer_.find(connection->peer);
  if (found != by_peer_.end() && found->second == connection) by_peer_.erase(found);
  const bool was_stranger = connection->stranger;
  const std::string peer = was_stranger ? "" : connection->peer;
  (was_stranger ? strangers_ : known_connections_).erase(connection);
  if (was_stranger) StrangerLeft(/*is_known=*/false);
  if (gone_ && !peer.empty()) gone_(peer);
  ServeWaiting();
}

void Listener::Admit(const std::string& peer, const std::string& member,
                     std::optional<MonoTime> until) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end() && gone_) gone_(peer);
  if (found == by_peer_.end() || !std::exchange(found->second->stranger, false)) return;
  const auto connection = found->second;
  known_connections_.splice(known_connections_.end(), strangers_, connection);
  StrangerLeft(/*is_known=*/true);
  connection->member = member;
  loop_->CancelTimer(connection->timer);
  if (until) {
    connection->timer = loop_->AddTimer(*until, [this, connection] { Forget(connection); });
  }
  setsockopt(connection->fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &kWindowBytes, sizeof(int));
  // From here on only its end is of interest, which is always told.
  loop_->Unwatch(connection->fd);
  const Status watched = loop_->Watch(
      connection->fd, 0, [this, connection](uint32_t events) { OnEvent(connection, events); });
  if (!watched.ok()) return Forget(connection);
  ServeWaiting();
}

void Listener::Cut(const std::string& peer) {
  const auto found = by_peer_.find(peer);
  if (found != by_peer_.end()) Forget(found->second);
}

void Listener::CutAll() {
  if (turn_timer_) loop_->CancelTimer(*turn_timer_);
  turn_timer_.reset();
  for (const Waiting& one : std::exchange(waiting_, {})) close(one.fd);
  while (!strangers_.empty()) Forget(strangers_.begin());
  while (!known_connections_.empty()) Forget(known_connections_.begin());
}

void Listener::CutMember(const std::string& member) {
  for (auto next = known_connections_.begin(); next != known_connections_.end();) {
    const auto connection = next++;
    if (connection->member == member) Forget(connection);
  }
}

}  // namespace longhaul
