#include "transport/p2p/ucx/knock.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace longhaul::transport::ucx {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
// The oldest connection is given up for one more. Until then its answer counts: lines are long.
constexpr size_t kMostDialled = 16;

}  // namespace

std::shared_ptr<Knock> Knock::Start(std::shared_ptr<EventLoop> loop, const SocketAddress& address,
                                    std::function<void()> done) {
  std::shared_ptr<Knock> knock(new Knock(std::move(loop), address, std::move(done)));
  knock->Try();
  return knock;
}

void Knock::Try() {
  if (dialled_.size() == kMostDialled) {
    loop_->Unwatch(dialled_.front().get());
    dialled_.erase(dialled_.begin());
  }
  UniqueFd fd(::socket(address_.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool asks = fd && ::connect(fd.get(), address_.get(), address_.size) != 0 &&
                    errno == EINPROGRESS &&
                    loop_
                        ->Watch(fd.get(), EPOLLOUT,
                                [weak = weak_from_this()](uint32_t) {
                                  if (const auto self = weak.lock()) self->Answered();
                                })
                        .ok();
  if (!asks) {
    // Connected, refused, or this machine cannot ask: the caller's own attempt says more.
    loop_->Post([self = shared_from_this()] { self->Answered(); });
    return;
  }
  dialled_.push_back(std::move(fd));
  const absl::Duration pause =
      std::min(kFirstPause * (1 << std::min(dialled_.size(), size_t{6})), kLongestPause);
  timer_ = loop_->AddTimer(loop_->now() + pause, [self = shared_from_this()] {
    self->timer_.reset();
    self->Try();
  });
}

void Knock::Answered() {
  const auto done = std::exchange(done_, nullptr);
  Stop();
  if (done) done();
}

void Knock::Stop() {
  done_ = nullptr;
  if (timer_) loop_->CancelTimer(*timer_);
  timer_.reset();
  for (const UniqueFd& fd : dialled_) loop_->Unwatch(fd.get());
  dialled_.clear();
}

}  // namespace longhaul::transport::ucx
