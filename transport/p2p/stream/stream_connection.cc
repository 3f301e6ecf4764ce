#include "transport/p2p/stream/stream_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/wire/link_header.h"
#include "proto/wire/little_endian.h"

namespace longhaul::transport::stream {
namespace {

using longhaul::relay::WouldBlock;

constexpr size_t kPayloadLengthAt = 28;
// The core refuses with a sentence what is a little too large.
constexpr size_t kMostPayload = kMaxFramePayloadBytes + (4 << 10);
// A buffer begins small, because a stranger may be the sender, and grows while it is full.
constexpr size_t kFirstBufferBytes = 8 << 10;
constexpr size_t kMostBufferBytes = 4 * (kMostPayload + wire::kLinkHeaderBytes);
constexpr int kReadsAtOnce = 4;
constexpr size_t kPiecesAtOnce = 48;

}  // namespace

StreamConnection::StreamConnection(std::shared_ptr<EventLoop> loop,
                                   std::shared_ptr<ConnectionTable> table, Words words)
    : loop_(std::move(loop)), table_(std::move(table)), words_(std::move(words)) {}

void StreamConnection::SetEvents(std::shared_ptr<internal::ConnectionEvents> events) {
  events_ = std::move(events);
  if (std::exchange(events_set_, true)) OnAdmitted();
}

void StreamConnection::Dial(const HostPort& address, const longhaul::relay::KeepAlive& keep_alive) {
  table_->resolver->Resolve(
      address, [weak = weak_from_this(), keep_alive](const StatusOr<SocketAddress>& found) {
        if (const auto self = weak.lock()) self->Connect(found, keep_alive);
      });
}

void StreamConnection::Connect(const StatusOr<SocketAddress>& address,
                               const longhaul::relay::KeepAlive& keep_alive) {
  if (state_ != State::kLookingUp) return;
  if (!address.ok()) return CloseWith(address.status());
  fd_.Reset(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return CloseWith(FromErrno("cannot make a socket", errno));
  longhaul::relay::PrepareSocket(fd_.get(), keep_alive);
  state_ = State::kConnecting;
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->bytes) !=
          0 &&
      errno != EINPROGRESS) {
    return CloseWith(absl::UnavailableError(std::strerror(errno)));
  }
  WatchFor(EPOLLOUT);
}

void StreamConnection::Adopt(UniqueFd fd) {
  fd_ = std::move(fd);
  longhaul::relay::PrepareSocket(fd_.get(), longhaul::relay::kJoinedKeepAlive);
  Open();
  WatchFor(EPOLLIN);
}

void StreamConnection::WatchFor(uint32_t events) {
  if (events == watched_ || state_ == State::kClosed) return;
  if (watched_ != 0) loop_->Unwatch(fd_.get());
  watched_ = events;
  const Status status = loop_->Watch(
      fd_.get(), events, [self = shared_from_this()](uint32_t ready) { self->OnEvent(ready); });
  if (status.ok()) return;
  watched_ = 0;
  loop_->Post([self = shared_from_this(), status] { self->CloseWith(status); });
}

void StreamConnection::OnEvent(uint32_t events) {
  const auto self = shared_from_this();
  if (state_ == State::kConnecting) return FinishConnect();
  if (state_ == State::kConnected) return OnGreeting();
  if (state_ != State::kOpen) return;
  if ((events & ~uint32_t{EPOLLOUT}) != 0) TakeMessages();
  if (state_ == State::kOpen && (events & EPOLLOUT) != 0) Flush();
}

void StreamConnection::FinishConnect() {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return CloseWith(absl::UnavailableError(std::strerror(error)));
  state_ = State::kConnected;
  WatchFor(EPOLLIN);
  OnConnected();
}

void StreamConnection::Open() {
  state_ = State::kOpen;
  buffer_.resize(kFirstBufferBytes);
  FlushSoon();
}

void StreamConnection::TakeMessages() {
  if (is_garbled_) return CloseWith(absl::UnavailableError("what comes is no frame"));
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got =
        ::recv(fd_.get(), buffer_.data() + held_, buffer_.size() - held_, MSG_DONTWAIT);
    if (got < 0 && WouldBlock()) return;
    if (got <= 0) {
      return CloseWith(
          absl::UnavailableError(got == 0 ? words_.ended : words_.broken + std::strerror(errno)));
    }
    held_ += static_cast<size_t>(got);
    const bool was_full = held_ == buffer_.size();
    if (!Deliver() || !was_full) return;
    buffer_.resize(std::min(2 * buffer_.size(), kMostBufferBytes));
  }
}

bool StreamConnection::Deliver() {
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

void StreamConnection::Send(std::span<const std::byte> header, const FrameView& payload,
                            SendDone done) {
  if (state_ == State::kClosed) {
    loop_->Post([done = std::move(done)] { done(absl::CancelledError("the channel is closed")); });
    return;
  }
  waiting_.push_back({header, payload, std::move(done)});
  if (state_ == State::kOpen) FlushSoon();
}

// Never inside Send, and with all that is sent in a row.
void StreamConnection::FlushSoon() {
  if (waiting_.empty() || (watched_ & EPOLLOUT) != 0 || std::exchange(flush_posted_, true)) return;
  loop_->Post([self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

void StreamConnection::Flush() {
  const auto self = shared_from_this();
  while (state_ == State::kOpen && !waiting_.empty()) {
    std::array<iovec, kPiecesAtOnce> pieces;
    size_t count = 0, skip = sent_of_first_;
    for (const Waiting& message : waiting_) {
      if (count + 3 > pieces.size()) break;
      for (const auto piece : {message.header, message.payload.header, message.payload.body}) {
        const size_t skipped = std::min(skip, piece.size());
        skip -= skipped;
        if (skipped == piece.size()) continue;
        pieces[count++] = {const_cast<std::byte*>(piece.data()) + skipped, piece.size() - skipped};
      }
    }
    msghdr batch{};
    batch.msg_iov = pieces.data();
    batch.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_.get(), &batch, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && WouldBlock()) return WatchFor(EPOLLIN | EPOLLOUT);
    if (sent < 0) {
      return CloseWith(absl::UnavailableError(words_.broken + std::strerror(errno)));
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

void StreamConnection::CloseWith(const Status& reason) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (std::exchange(watched_, 0) != 0) loop_->Unwatch(fd_.get());
  OnClosing();
  fd_.Reset();
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

}  // namespace longhaul::transport::stream
