#include "transport/p2p/relay/connection.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "proto/wire/link_header.h"
#include "proto/wire/little_endian.h"
#include "transport/relay/socket.h"

namespace longhaul::transport::relay {
namespace {

using longhaul::relay::RelayWord;
using longhaul::relay::Side;
using longhaul::relay::WouldBlock;

// From the look-up of the relay's name to its greeting.
constexpr absl::Duration kGreetingLimit = absl::Seconds(3);
constexpr size_t kPayloadLengthAt = 28;
// The core refuses with a sentence what is a little too large.
constexpr size_t kMostPayload = kMaxFramePayloadBytes + (4 << 10);
constexpr size_t kBufferBytes = 4 * (kMostPayload + wire::kLinkHeaderBytes);
constexpr int kReadsAtOnce = 4;
constexpr size_t kPiecesAtOnce = 48;

}  // namespace

std::shared_ptr<RelayedConnection> RelayedConnection::Start(std::shared_ptr<EventLoop> loop,
                                                            std::shared_ptr<ConnectionTable> table,
                                                            const HostPort& address,
                                                            longhaul::relay::Way way, Side side,
                                                            Joined joined) {
  std::shared_ptr<RelayedConnection> connection(
      new RelayedConnection(std::move(loop), std::move(table), longhaul::ToString(address),
                            std::move(way), side, std::move(joined)));
  connection->table_->connections.Add(connection);
  const std::weak_ptr<RelayedConnection> weak = connection;
  connection->greeting_timer_ =
      connection->loop_->AddTimer(connection->loop_->now() + kGreetingLimit, [weak] {
        if (const auto self = weak.lock()) {
          self->CloseWith(
              Unavailable("no relay answers within {} s", absl::ToInt64Seconds(kGreetingLimit)));
        }
      });
  connection->table_->resolver->Resolve(address, [weak](const StatusOr<SocketAddress>& found) {
    if (const auto self = weak.lock()) self->Connect(found);
  });
  return connection;
}

RelayedConnection::RelayedConnection(std::shared_ptr<EventLoop> loop,
                                     std::shared_ptr<ConnectionTable> table, std::string address,
                                     longhaul::relay::Way way, Side side, Joined joined)
    : loop_(std::move(loop)),
      table_(std::move(table)),
      address_(std::move(address)),
      way_(std::move(way)),
      side_(side),
      description_(
          fmt::format("{} relay {}", side == Side::kDialler ? "through" : "waiting at", address_)),
      joined_(std::move(joined)) {}

void RelayedConnection::SetEvents(std::shared_ptr<internal::ConnectionEvents> events) {
  events_ = std::move(events);
}

void RelayedConnection::Connect(const StatusOr<SocketAddress>& address) {
  if (state_ != State::kLookingUp) return;
  if (!address.ok()) return CloseWith(address.status());
  fd_.Reset(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return CloseWith(FromErrno("cannot make a socket", errno));
  longhaul::relay::PrepareSocket(fd_.get(), longhaul::relay::kWaitingKeepAlive);
  state_ = State::kConnecting;
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->bytes) !=
          0 &&
      errno != EINPROGRESS) {
    return CloseWith(absl::UnavailableError(std::strerror(errno)));
  }
  WatchFor(EPOLLOUT);
}

void RelayedConnection::WatchFor(uint32_t events) {
  if (events == watched_ || state_ == State::kClosed) return;
  if (watched_ != 0) loop_->Unwatch(fd_.get());
  watched_ = events;
  const Status status = loop_->Watch(
      fd_.get(), events, [self = shared_from_this()](uint32_t ready) { self->OnEvent(ready); });
  if (status.ok()) return;
  watched_ = 0;
  loop_->Post([self = shared_from_this(), status] { self->CloseWith(status); });
}

void RelayedConnection::OnEvent(uint32_t events) {
  const auto self = shared_from_this();
  if (state_ == State::kConnecting) FinishConnect();
  if (state_ == State::kConnected) return TakeGreeting();
  if (state_ == State::kAnswered) return TakeWord();
  if (state_ != State::kOpen) return;
  if ((events & ~uint32_t{EPOLLOUT}) != 0) TakeFrames();
  if (state_ == State::kOpen && (events & EPOLLOUT) != 0) Flush();
}

void RelayedConnection::FinishConnect() {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return CloseWith(absl::UnavailableError(std::strerror(error)));
  state_ = State::kConnected;
  WatchFor(EPOLLIN);
}

void RelayedConnection::TakeGreeting() {
  std::array<char, longhaul::relay::kGreetingBytes> bytes;
  const ssize_t got = ::recv(fd_.get(), bytes.data(),
                             longhaul::relay::kGreetingBytes - greeting_.size(), MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) return;
  if (got <= 0) return CloseWith(absl::UnavailableError("the relay ended the connection"));
  greeting_.append(bytes.data(), static_cast<size_t>(got));
  if (greeting_.size() < longhaul::relay::kGreetingBytes) return;
  const StatusOr<std::string_view> nonce = longhaul::relay::ParseGreeting(greeting_);
  if (!nonce.ok()) return CloseWith(nonce.status());
  const std::string answer = longhaul::relay::Answer(way_.ticket, side_, *nonce);
  // It has room for so little.
  if (::send(fd_.get(), answer.data(), answer.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(answer.size())) {
    return CloseWith(absl::UnavailableError("the relay ended the connection"));
  }
  state_ = State::kAnswered;
  loop_->CancelTimer(greeting_timer_);
}

// One byte: frames behind it come in the loop's next round, behind what was posted before the other
// end came, such as that it is expected.
void RelayedConnection::TakeWord() {
  char word = 0;
  const ssize_t got = ::recv(fd_.get(), &word, 1, MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) return;
  if (got <= 0) return CloseWith(absl::UnavailableError("the relay ended the connection"));
  switch (static_cast<RelayWord>(word)) {
    case RelayWord::kJoined:
      state_ = State::kOpen;
      // From now on the link's heartbeats say whether the peer is there.
      longhaul::relay::SetKeepAlive(fd_.get(), longhaul::relay::kJoinedKeepAlive);
      buffer_.resize(kBufferBytes);
      if (const auto joined = std::exchange(joined_, nullptr)) joined(shared_from_this());
      FlushSoon();
      return;
    case RelayWord::kRefused:
      return CloseWith(absl::PermissionDeniedError(
          "the relay refuses the ticket: the relay or the coordinator was started with another "
          "state directory, or the epoch is a week old"));
    case RelayWord::kNobody:
      return CloseWith(absl::UnavailableError("the peer does not wait at the relay"));
    case RelayWord::kFull:
      return CloseWith(absl::UnavailableError("the relay is full"));
  }
  CloseWith(absl::InvalidArgumentError("the relay said what no relay says"));
}

void RelayedConnection::TakeFrames() {
  if (is_garbled_) return CloseWith(absl::UnavailableError("what comes is no frame"));
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got =
        ::recv(fd_.get(), buffer_.data() + held_, buffer_.size() - held_, MSG_DONTWAIT);
    if (got < 0 && WouldBlock()) return;
    if (got <= 0) {
      return CloseWith(absl::UnavailableError(
          got == 0 ? fmt::format("the peer or the relay {} ended the connection", address_)
                   : fmt::format("through relay {}: {}", address_, std::strerror(errno))));
    }
    held_ += static_cast<size_t>(got);
    const bool was_full = held_ == buffer_.size();
    if (!Deliver() || !was_full) return;
  }
}

bool RelayedConnection::Deliver() {
  size_t at = 0;
  while (held_ - at >= wire::kLinkHeaderBytes) {
    const auto rest = std::span<const std::byte>(buffer_).subspan(at, held_ - at);
    const size_t payload = wire::GetLe<uint32_t>(rest, kPayloadLengthAt);
    if (payload > kMostPayload) {
      // The core says why it refuses, and closes.
      is_garbled_ = true;
      if (const auto events = events_) events->OnMessage(rest.first(wire::kLinkHeaderBytes), {});
      return false;
    }
    if (rest.size() < wire::kLinkHeaderBytes + payload) break;
    if (const auto events = events_) {
      events->OnMessage(rest.first(wire::kLinkHeaderBytes),
                        rest.subspan(wire::kLinkHeaderBytes, payload));
    }
    if (state_ != State::kOpen) return false;
    at += wire::kLinkHeaderBytes + payload;
  }
  std::memmove(buffer_.data(), buffer_.data() + at, held_ - at);
  held_ -= at;
  return true;
}

void RelayedConnection::Send(std::span<const std::byte> header, const FrameView& payload,
                             SendDone done) {
  if (state_ == State::kClosed) {
    loop_->Post([done = std::move(done)] { done(absl::CancelledError("the channel is closed")); });
    return;
  }
  waiting_.push_back({header, payload, std::move(done)});
  if (state_ == State::kOpen) FlushSoon();
}

// Never inside Send, and with all that is sent in a row.
void RelayedConnection::FlushSoon() {
  if (waiting_.empty() || (watched_ & EPOLLOUT) != 0 || std::exchange(flush_posted_, true)) return;
  loop_->Post([self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

void RelayedConnection::Flush() {
  const auto self = shared_from_this();
  while (state_ == State::kOpen && !waiting_.empty()) {
    std::array<iovec, kPiecesAtOnce> pieces;
    size_t count = 0, skip = sent_of_first_;
    for (const Waiting& frame : waiting_) {
      if (count + 3 > pieces.size()) break;
      for (const auto piece : {frame.header, frame.payload.header, frame.payload.body}) {
        const size_t skipped = std::min(skip, piece.size());
        skip -= skipped;
        if (skipped == piece.size()) continue;
        pieces[count++] = {const_cast<std::byte*>(piece.data()) + skipped, piece.size() - skipped};
      }
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && WouldBlock()) return WatchFor(EPOLLIN | EPOLLOUT);
    if (sent < 0) {
      return CloseWith(Unavailable("through relay {}: {}", address_, std::strerror(errno)));
    }
    sent_of_first_ += static_cast<size_t>(sent);
    while (!waiting_.empty() && sent_of_first_ >= waiting_.front().size()) {
      sent_of_first_ -= waiting_.front().size();
      const SendDone done = std::move(waiting_.front().done);
      waiting_.pop_front();
      done(absl::OkStatus());
      if (state_ != State::kOpen) return;
    }
  }
  if (state_ == State::kOpen) WatchFor(EPOLLIN);
}

void RelayedConnection::CloseWith(const Status& reason) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  loop_->CancelTimer(greeting_timer_);
  if (std::exchange(watched_, 0) != 0) loop_->Unwatch(fd_.get());
  fd_.Reset();
  joined_ = nullptr;
  const Status said = absl::IsCancelled(reason) || absl::IsUnavailable(reason)
                          ? reason
                          : absl::UnavailableError(std::string(Message(reason)));
  // Never inside the call that closes.
  loop_->Post([self = shared_from_this(), said] {
    std::deque<Waiting> waiting;
    waiting.swap(self->waiting_);
    for (Waiting& one : waiting) one.done(absl::CancelledError("the channel is closed"));
    if (const auto events = std::exchange(self->events_, nullptr)) events->OnClosed(said);
    self->table_->connections.Remove(self);
  });
}

}  // namespace longhaul::transport::relay
