#include "transport/p2p/stream/stream_connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
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
constexpr size_t kMostMessage = kMostPayload + wire::kLinkHeaderBytes;
constexpr size_t kMostBufferBytes = 5 * kMostMessage;
// How much is read before other events have their turn, among them this connection's sending: as
// much as a link hands to a connection at once.
constexpr size_t kMostReadAtOnce = 4 * kMostMessage;
constexpr size_t kPiecesAtOnce = 48;
// The kernel takes this much ahead of what TCP may send, and asks for more when half of it is sent.
// Less would wake this side for every segment.
constexpr int kNotSentBytes = 512 << 10;
// The rest of a message that is shorter is not worth a call.
constexpr size_t kShortRest = 8 << 10;
// What the peer announced may come late, if the line is slow, or never.
constexpr absl::Duration kLongestWait = absl::Milliseconds(20);
// Where so many bytes come in less time, as over more than 4 Gbit/s, several frames come at each
// wake without waiting, and a side that waits longer also sends later.
constexpr size_t kPacedBytes = 4 * kMaxFramePayloadBytes;
constexpr absl::Duration kPacedTime = absl::Microseconds(500);

void PrepareLinkSocket(int fd, const longhaul::relay::KeepAlive& keep_alive) {
  longhaul::relay::PrepareSocket(fd, keep_alive);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kNotSentBytes, sizeof(kNotSentBytes));
}

}  // namespace

StreamConnection::StreamConnection(std::shared_ptr<EventLoop> loop,
                                   std::shared_ptr<ConnectionTable> table, Words words)
    : loop_(std::move(loop)), table_(std::move(table)), words_(std::move(words)) {}

void StreamConnection::SetEvents(std::shared_ptr<internal::ConnectionEvents> events) {
  events_ = std::move(events);
  if (!std::exchange(events_set_, true)) return;
  admitted_ = true;
  OnAdmitted();
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
  PrepareLinkSocket(fd_.get(), keep_alive);
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
  PrepareLinkSocket(fd_.get(), longhaul::relay::kJoinedKeepAlive);
  Open();
  WatchFor(EPOLLIN);
}

void StreamConnection::WatchFor(uint32_t events) {
  if (events == watched_ || state_ == State::kClosed) return;
  const bool is_watched = std::exchange(watched_, events) != 0;
  const Status status =
      is_watched ? loop_->ChangeEvents(fd_.get(), events)
                 : loop_->Watch(fd_.get(), events, [self = shared_from_this()](uint32_t ready) {
                     self->OnEvent(ready);
                   });
  if (status.ok()) return;
  if (!is_watched) watched_ = 0;
  loop_->Post([self = shared_from_this(), status] { self->CloseWith(status); });
}

void StreamConnection::OnEvent(uint32_t events) {
  const auto self = shared_from_this();
  if (state_ == State::kConnecting) return FinishConnect();
  if (state_ == State::kConnected) return OnGreeting();
  if (state_ != State::kOpen) return;
  if ((events & ~uint32_t{EPOLLOUT}) != 0) TakeMessages();
  if (state_ != State::kOpen || (events & EPOLLOUT) == 0) return;
  // Stays watched while there is something to send at each event, to spare the calls.
  if (waiting_.empty()) return WatchFor(EPOLLIN);
  Flush();
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
  for (size_t read = 0; read < kMostReadAtOnce;) {
    MakeRoom();
    const size_t room = buffer_.size() - end_;
    const ssize_t got = ::recv(fd_.get(), buffer_.data() + end_, room, MSG_DONTWAIT);
    if (got < 0 && WouldBlock()) break;
    if (got <= 0) {
      return CloseWith(
          absl::UnavailableError(got == 0 ? words_.ended : words_.broken + std::strerror(errno)));
    }
    ++reads_;
    MeasurePace(static_cast<size_t>(got));
    read += static_cast<size_t>(got);
    end_ += static_cast<size_t>(got);
    if (!Deliver()) return;
    if (static_cast<size_t>(got) < room) break;
    buffer_.resize(std::min(2 * buffer_.size(), kMostBufferBytes));
  }
  WaitForRest();
}

void StreamConnection::MeasurePace(size_t read) {
  paced_bytes_ += read;
  if (paced_bytes_ < kPacedBytes) return;
  const MonoTime now = loop_->now();
  fast_ = now - paced_since_ < kPacedTime;
  paced_bytes_ = 0;
  paced_since_ = now;
}

void StreamConnection::MakeRoom() {
  if (begin_ == 0) return;
  // The rest of a message is moved only if it would not fit otherwise.
  if (begin_ != end_ && buffer_.size() - end_ > kMostMessage) return;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
}

void StreamConnection::WaitForRest() {
  const size_t held = end_ - begin_;
  size_t rest = 0;                                               // of the message that has begun
  size_t followers = following_ > held ? following_ - held : 0;  // behind it
  if (held >= wire::kLinkHeaderBytes) {
    const auto header = std::span<const std::byte>(buffer_).subspan(begin_, wire::kLinkHeaderBytes);
    rest = wire::kLinkHeaderBytes + wire::GetLe<uint32_t>(header, kPayloadLengthAt) - held;
    followers = admitted_ ? wire::BytesFollowing(header) : 0;
  }
  if (!patient_ || fast_) followers = 0;
  const size_t awaited = std::min(rest + followers, kMostReadAtOnce);
  if (followers != 0) WatchFollowers();
  const int low_water = awaited < kShortRest ? 1 : static_cast<int>(awaited);
  if (low_water == low_water_) return;
  low_water_ = low_water;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
}

void StreamConnection::WatchFollowers() {
  if (followers_timer_) return;
  reads_watched_ = reads_;
  followers_timer_ = loop_->AddTimer(loop_->now() + kLongestWait, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->followers_timer_.reset();
    if (self->state_ != State::kOpen) return;
    if (self->reads_ == self->reads_watched_) self->patient_ = false;
    self->WaitForRest();
  });
}

bool StreamConnection::Deliver() {
  while (end_ - begin_ >= wire::kLinkHeaderBytes) {
    const auto rest = std::span<const std::byte>(buffer_).subspan(begin_, end_ - begin_);
    const size_t payload = wire::GetLe<uint32_t>(rest, kPayloadLengthAt);
    if (payload > kMostPayload) {
      // The core says why it refuses, and closes.
      is_garbled_ = true;
      if (const auto events = events_) events->OnMessage(rest.first(wire::kLinkHeaderBytes), {});
      return false;
    }
    if (rest.size() < wire::kLinkHeaderBytes + payload) break;
    following_ = admitted_ ? wire::BytesFollowing(rest.first(wire::kLinkHeaderBytes)) : 0;
    patient_ = true;
    if (const auto events = events_) {
      events->OnMessage(rest.first(wire::kLinkHeaderBytes),
                        rest.subspan(wire::kLinkHeaderBytes, payload));
    }
    if (state_ != State::kOpen) return false;
    begin_ += wire::kLinkHeaderBytes + payload;
  }
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
      const Status why = absl::UnavailableError(words_.broken + std::strerror(errno));
      // The peer may have said before why it closes the connection.
      TakeMessages();
      return CloseWith(why);
    }
    line_.Sent(fd_.get(), static_cast<size_t>(sent), [this] { return words_.description; });
    sent_of_first_ += static_cast<size_t>(sent);
    while (!waiting_.empty() && sent_of_first_ >= waiting_.front().size()) {
      sent_of_first_ -= waiting_.front().size();
      const SendDone done = std::move(waiting_.front().done);
      waiting_.pop_front();
      done(absl::OkStatus());
      if (state_ != State::kOpen) return;
    }
  }
}

void StreamConnection::CloseWith(const Status& reason) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (followers_timer_) loop_->CancelTimer(*followers_timer_);
  followers_timer_.reset();
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
