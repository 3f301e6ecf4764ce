#include "transport/relay/pipe.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "proto/rpc/listener.h"
#include "transport/relay/socket.h"

namespace longhaul::relay {
namespace {

// For what is under way when one end has gone.
constexpr absl::Duration kDrainLimit = absl::Seconds(5);
// Reads in a row, so that one pipe leaves room for others.
constexpr int kMovesAtOnce = 16;

}  // namespace

Pipe::Pipe(std::shared_ptr<EventLoop> loop, int one, int other, std::function<void(size_t)> carried,
           std::function<void()> done)
    : loop_(std::move(loop)), carried_(std::move(carried)), done_(std::move(done)) {
  directions_[0].from = directions_[1].to = one;
  directions_[0].to = directions_[1].from = other;
}

void Pipe::Start() {
  WatchBoth();
}

void Pipe::Stop() {
  for (size_t i = 0; i < directions_.size(); ++i) {
    if (std::exchange(watched_[i], 0) != 0) loop_->Unwatch(directions_[i].from);
  }
  if (drain_timer_) loop_->CancelTimer(*drain_timer_);
  drain_timer_.reset();
  carried_ = nullptr;
  done_ = nullptr;
}

bool Pipe::Move(Direction& direction) {
  for (int i = 0; i < kMovesAtOnce; ++i) {
    if (direction.MayRead()) {
      const ssize_t got =
          ::recv(direction.from, direction.buffer.data(), direction.buffer.size(), MSG_DONTWAIT);
      if (got < 0) return WouldBlock();
      direction.begin = 0;
      direction.end = static_cast<size_t>(got);
      direction.ended = got == 0;
    }
    if (!direction.Waits()) return true;
    const ssize_t sent = ::send(direction.to, direction.buffer.data() + direction.begin,
                                direction.end - direction.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return WouldBlock();
    direction.begin += static_cast<size_t>(sent);
    direction.line.Sent(direction.to, static_cast<size_t>(sent),
                        [&] { return "relayed to " + PeerTextOf(direction.to); });
    carried_(static_cast<size_t>(sent));
  }
  return true;
}

void Pipe::OnEvent(int fd, uint32_t events) {
  if (!done_) return;
  const auto self = shared_from_this();
  for (Direction& direction : directions_) {
    if (direction.from != fd && direction.to != fd) continue;
    if (!Move(direction)) return End();
  }
  const bool reset = (events & (EPOLLERR | EPOLLHUP)) != 0;
  const Direction& down = directions_[0];
  const Direction& up = directions_[1];
  if (reset || ((down.ended || up.ended) && !down.Waits() && !up.Waits())) return End();
  if ((down.ended || up.ended) && !drain_timer_) {
    drain_timer_ = loop_->AddTimer(loop_->now() + kDrainLimit, [self] {
      self->drain_timer_.reset();
      self->End();
    });
  }
  WatchBoth();
}

void Pipe::WatchBoth() {
  for (size_t i = 0; i < directions_.size(); ++i) {
    const int fd = directions_[i].from;
    const uint32_t wanted = (directions_[i].MayRead() ? uint32_t{EPOLLIN} : 0) |
                            (directions_[1 - i].Waits() ? uint32_t{EPOLLOUT} : 0);
    if (wanted == watched_[i]) continue;
    if (watched_[i] != 0) loop_->Unwatch(fd);
    watched_[i] = 0;
    // With nothing wanted, its end would be told for ever.
    if (wanted == 0) continue;
    const Status status = loop_->Watch(
        fd, wanted,
        [self = shared_from_this(), fd](uint32_t events) { self->OnEvent(fd, events); });
    if (!status.ok()) return End();
    watched_[i] = wanted;
  }
}

void Pipe::End() {
  if (!done_) return;
  const auto self = shared_from_this();
  // Never inside Start.
  loop_->Post([done = std::exchange(done_, nullptr)] { done(); });
  Stop();
}

}  // namespace longhaul::relay
