#include "tests/sim/coordinator/connection.h"

#include <algorithm>
#include <utility>

namespace longhaul::coordinator::sim {
namespace {

// How long an end may go on without noticing that the other is gone.
constexpr absl::Duration kLongestSilence = absl::Seconds(20);
// How long a network may keep what it did not deliver in time.
constexpr absl::Duration kLatest = absl::Seconds(10);

}  // namespace

void Connection::Send(Direction& direction, std::function<void()> arrive, bool may_be_late) {
  Timeline& timeline = world_->timeline;
  absl::Duration latency = world_->random.Between(absl::Milliseconds(1), absl::Milliseconds(80));
  const MonoTime at = std::max(direction.newest, timeline.now() + latency);
  direction.newest = at;
  const auto deliver = [self = shared_from_this(), &direction, at, may_be_late,
                        arrive = std::move(arrive)] {
    if (at < direction.lost_from) {
      arrive();
    } else if (direction.late_by && may_be_late) {
      self->world_->timeline.After(*direction.late_by, [self, arrive] { arrive(); });
    }
  };
  timeline.After(at - timeline.now(), deliver);
  // No stream says a thing twice, but both sides promise that it would do no harm.
  if (world_->random.Chance(world_->faults.twice)) timeline.After(at - timeline.now(), deliver);
}

void Connection::Up(v1::WorkerMessage message) {
  // Not a greeting: that of a process that has died would pass for the newest one's.
  const bool may_be_late = !message.has_hello();
  Send(
      up_,
      [this, message = std::move(message)] {
        if (coordinator_.message) coordinator_.message(message);
      },
      may_be_late);
}

void Connection::Down(v1::WorkerCommand command) {
  Send(down_, [this, command = std::move(command)] {
    if (worker_.command) worker_.command(command);
  });
}

void Connection::Delay(absl::Duration delay) {
  for (Direction* direction : {&up_, &down_}) {
    direction->newest = std::max(direction->newest, world_->timeline.now() + delay);
  }
}

// From some point on, what is under way does not arrive.
void Connection::Break(Direction& direction) {
  if (direction.lost_from != MonoTime::max()) return;
  const MonoTime now = world_->timeline.now();
  MonoTime from = now;
  if (direction.newest > now) {
    from = now + world_->random.Between(absl::ZeroDuration(), direction.newest - now);
  }
  direction.lost_from = from;
  // A worker reads no stream but its newest. The coordinator reads each until its end.
  if (&direction == &up_ && world_->random.Chance(world_->faults.late)) {
    direction.late_by = world_->random.Between(absl::ZeroDuration(), kLatest);
  }
}

void Connection::TellWorker(absl::Duration after) {
  if (std::exchange(worker_told_, true)) return;
  world_->timeline.After(after, [self = shared_from_this()] {
    if (self->worker_.ended) self->worker_.ended();
    self->worker_ = {};
  });
}

void Connection::TellCoordinator(absl::Duration after, std::string why) {
  if (std::exchange(coordinator_told_, true)) return;
  // Behind what still arrives.
  const MonoTime now = world_->timeline.now();
  const MonoTime last =
      up_.late_by ? up_.newest + *up_.late_by : std::min(up_.newest, up_.lost_from);
  world_->timeline.After(std::max(after, last - now),
                         [self = shared_from_this(), why = std::move(why)] {
                           if (self->coordinator_.ended) self->coordinator_.ended(why);
                           self->coordinator_ = {};
                         });
}

void Connection::Close() {
  if (!open_) return;
  open_ = false;
  const absl::Duration drained =
      std::max(down_.newest - world_->timeline.now(), absl::Milliseconds(20));
  Break(up_);
  TellCoordinator(absl::Milliseconds(5), "its connection was closed");
  TellWorker(drained);
}

void Connection::WorkerMoved(absl::Duration after) {
  if (!open_) return;
  open_ = false;
  Break(up_);
  Break(down_);
  TellWorker(after);
}

void Connection::Cut(bool silent) {
  if (!open_) return;
  open_ = false;
  Break(up_);
  Break(down_);
  Random& random = world_->random;
  TellWorker(
      random.Between(absl::ZeroDuration(), silent ? kLongestSilence : absl::Milliseconds(500)));
  // Without a reset, only the coordinator's own time limit tells it.
  if (!silent) TellCoordinator(random.Between(absl::ZeroDuration(), absl::Seconds(1)), "reset");
}

void Connection::CutOneWay(bool up) {
  if (!open_) return;
  Break(up ? up_ : down_);
  // No answer to a keepalive comes back either way.
  const absl::Duration noticed = world_->random.Between(absl::Seconds(1), kLongestSilence);
  TellWorker(noticed);
  if (!up) TellCoordinator(noticed + absl::Milliseconds(50), "reset");
}

void Connection::WorkerDied(bool silent) {
  worker_ = {};
  if (!open_) return;
  open_ = false;
  // Nothing says it over a line that carries nothing.
  silent = silent || up_.lost_from != MonoTime::max();
  Break(up_);
  if (!silent) {
    TellCoordinator(world_->random.Between(absl::ZeroDuration(), absl::Milliseconds(200)),
                    "its connection was closed");
  }
}

void Connection::CoordinatorDied(bool silent) {
  coordinator_ = {};
  if (!open_) return;
  open_ = false;
  Break(down_);
  TellWorker(world_->random.Between(absl::ZeroDuration(),
                                    silent ? kLongestSilence : absl::Milliseconds(200)));
}

}  // namespace longhaul::coordinator::sim
