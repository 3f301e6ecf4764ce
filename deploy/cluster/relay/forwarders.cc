#include "deploy/cluster/relay/forwarders.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "deploy/cluster/relay/control.h"

namespace longhaul::relay {
namespace {

constexpr size_t kDestinationBytes = 6;
constexpr uint32_t kMostThreads = 4;

}  // namespace

// One thread's part. Everything with "OnLoop" on that thread, the rest from outside.
class Forwarder {
 public:
  // The share of the workers whose number is `index` modulo `count`.
  static StatusOr<std::unique_ptr<Forwarder>> Start(uint32_t index, uint32_t count,
                                                    HeldBytes* held);
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;
  // The thread ends before what it works with goes.
  ~Forwarder() { thread_.reset(); }

  // Takes frames of new ports in, to no use until Change; all or nothing.
  Status Prepare(const Routes& routes);
  void Change(const std::shared_ptr<const Routes>& routes);
  // Instead of Change.
  void Cancel();
  void AddCounts(ForwardCounts* counts);

 private:
  Forwarder(uint32_t index, uint32_t count, HeldBytes* held, UniqueFd timer)
      : index_(index),
        count_(count),
        timer_(std::move(timer)),
        queue_(std::random_device{}(), held) {}
  Status PrepareOnLoop(const Routes& routes);
  void ChangeOnLoop(const std::shared_ptr<const Routes>& routes);
  void ForgetOtherPortsOnLoop(const Routes& routes);
  void ForwardOnLoop(int fd);
  void AdmitOnLoop(uint32_t from, Arrival arrival);
  void ReleaseDueOnLoop();
  void SetTimerOnLoop();

  const uint32_t index_, count_;
  const UniqueFd timer_;  // a loop's own timers are of milliseconds
  std::optional<MonoTime> timer_time_;
  DelayQueue queue_;
  std::shared_ptr<const Routes> routes_ = std::make_shared<Routes>();
  std::set<int> watched_;            // descriptors of ports; those of routes_ and prepared ones
  std::map<int, uint32_t> numbers_;  // of routes_'s among them
  std::vector<Arrival> arrivals_;
  std::vector<std::vector<Frame>> outgoing_;  // of each port
  Unsent unsent_;
  std::shared_ptr<EventLoopThread> thread_;
};

StatusOr<std::unique_ptr<Forwarder>> Forwarder::Start(uint32_t index, uint32_t count,
                                                      HeldBytes* held) {
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return FromErrno("timerfd", errno);
  std::unique_ptr<Forwarder> forwarder(new Forwarder(index, count, held, std::move(timer)));
  LH_ASSIGN_OR_RETURN(forwarder->thread_, EventLoopThread::Start());
  Status status;
  forwarder->thread_->RunAndWait([&, raw = forwarder.get()] {
    status = raw->thread_->loop()->Watch(raw->timer_.get(), EPOLLIN,
                                         [raw](uint32_t) { raw->ReleaseDueOnLoop(); });
  });
  LH_RETURN_IF_ERROR(status);
  return forwarder;
}

Status Forwarder::Prepare(const Routes& routes) {
  Status status;
  thread_->RunAndWait([&] { status = PrepareOnLoop(routes); });
  return status;
}

void Forwarder::Change(const std::shared_ptr<const Routes>& routes) {
  thread_->RunAndWait([&] { ChangeOnLoop(routes); });
}

void Forwarder::Cancel() {
  thread_->RunAndWait([&] { ForgetOtherPortsOnLoop(*routes_); });
}

void Forwarder::AddCounts(ForwardCounts* counts) {
  thread_->RunAndWait([&] {
    counts->queue += queue_.counts();
    counts->unsent.refused += unsent_.refused;
    counts->unsent.failed += unsent_.failed;
  });
}

Status Forwarder::PrepareOnLoop(const Routes& routes) {
  for (uint32_t i = index_; i < routes.ports.size(); i += count_) {
    const int fd = routes.ports[i]->fd();
    if (watched_.contains(fd)) continue;
    Status status =
        thread_->loop()->Watch(fd, EPOLLIN, [this, fd](uint32_t) { ForwardOnLoop(fd); });
    if (!status.ok()) {
      ForgetOtherPortsOnLoop(*routes_);
      return status;
    }
    watched_.insert(fd);
  }
  return absl::OkStatus();
}

void Forwarder::ForgetOtherPortsOnLoop(const Routes& routes) {
  numbers_.clear();
  for (uint32_t i = index_; i < routes.ports.size(); i += count_) {
    numbers_[routes.ports[i]->fd()] = i;
  }
  std::erase_if(watched_, [&](int fd) {
    if (numbers_.contains(fd)) return false;
    thread_->loop()->Unwatch(fd);
    return true;
  });
}

void Forwarder::ChangeOnLoop(const std::shared_ptr<const Routes>& routes) {
  ForgetOtherPortsOnLoop(*routes);
  routes_ = routes;
  outgoing_.resize(routes->ports.size());
  queue_.Configure(static_cast<uint32_t>(routes->ports.size()), routes->paths, routes->connected);
  SetTimerOnLoop();
}

void Forwarder::AdmitOnLoop(uint32_t from, Arrival arrival) {
  if (arrival.frame.size < kGsoHeaderBytes + kDestinationBytes) return;
  const auto* destination =
      reinterpret_cast<const uint8_t*>(arrival.frame.bytes.get()) + kGsoHeaderBytes;
  const auto ports = static_cast<uint32_t>(routes_->ports.size());
  const uint32_t number = NumberOfMac(destination);
  if (number >= 1 && number <= ports) {
    queue_.Admit(from, number - 1, std::move(arrival.frame), arrival.time);
    return;
  }
  if ((destination[0] & 1) == 0) return;
  for (uint32_t to = 0; to < ports; ++to) {
    if (to == from) continue;
    const uint32_t size = arrival.frame.size;
    Frame copy{std::make_unique_for_overwrite<std::byte[]>(size), size, size};
    std::memcpy(copy.bytes.get(), arrival.frame.bytes.get(), size);
    queue_.Admit(from, to, std::move(copy), arrival.time);
  }
}

void Forwarder::ForwardOnLoop(int fd) {
  const auto number = numbers_.find(fd);
  if (number == numbers_.end()) return;  // of a port that is not in use yet
  const uint32_t from = number->second;
  arrivals_.clear();
  routes_->ports[from]->Receive(&arrivals_);
  for (Arrival& arrival : arrivals_) AdmitOnLoop(from, std::move(arrival));
  SetTimerOnLoop();
}

void Forwarder::ReleaseDueOnLoop() {
  const MonoTime now = Now();
  while (std::optional<DelayQueue::Due> due = queue_.Release(now)) {
    outgoing_[due->to].push_back(std::move(due->frame));
  }
  for (size_t i = 0; i < outgoing_.size(); ++i) {
    if (outgoing_[i].empty()) continue;
    const Unsent unsent = routes_->ports[i]->Send(outgoing_[i]);
    unsent_.refused += unsent.refused;
    unsent_.failed += unsent.failed;
    outgoing_[i].clear();
  }
  timer_time_.reset();  // It stays ready until it is set anew.
  SetTimerOnLoop();
}

void Forwarder::SetTimerOnLoop() {
  const std::optional<MonoTime> next = queue_.NextRelease();
  // One that is early does no harm; that it has gone off with nothing left does.
  if (timer_time_ && next && *timer_time_ <= *next) return;
  timer_time_ = next;
  itimerspec time{};
  if (next) {
    // Zero would stop it.
    time.it_value =
        absl::ToTimespec(std::max(absl::Nanoseconds(next->nanoseconds()), absl::Nanoseconds(1)));
  }
  LH_CHECK(timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr) == 0,
           "a timer was refused: {}", std::strerror(errno));
}

uint32_t ForwarderThreads() {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 1;
  return std::clamp<uint32_t>(static_cast<uint32_t>(CPU_COUNT(&mine)), 1, kMostThreads);
}

StatusOr<std::unique_ptr<Forwarders>> Forwarders::Start(uint32_t threads, size_t most_bytes) {
  LH_CHECK(threads >= 1, "a relay of no threads");
  std::unique_ptr<Forwarders> forwarders(new Forwarders(most_bytes));
  for (uint32_t i = 0; i < threads; ++i) {
    LH_ASSIGN_OR_RETURN(auto forwarder, Forwarder::Start(i, threads, &forwarders->held_));
    forwarders->threads_.push_back(std::move(forwarder));
  }
  return forwarders;
}

Forwarders::Forwarders(size_t most_bytes) : held_(most_bytes) {}

Forwarders::~Forwarders() = default;

Status Forwarders::Configure(Routes routes) {
  const auto changed = std::make_shared<const Routes>(std::move(routes));
  for (size_t i = 0; i < threads_.size(); ++i) {
    Status status = threads_[i]->Prepare(*changed);
    if (status.ok()) continue;
    for (size_t k = 0; k < i; ++k) threads_[k]->Cancel();
    return status;
  }
  CountMissed();  // by ports that may go now
  routes_ = changed;
  for (const auto& thread : threads_) thread->Change(routes_);
  return absl::OkStatus();
}

void Forwarders::CountMissed() {
  if (routes_ == nullptr) return;
  for (const auto& port : routes_->ports) missed_ += port->TakeMissed();
}

ForwardCounts Forwarders::Counts() {
  CountMissed();
  ForwardCounts counts{.queue = {}, .missed = missed_, .unsent = {}};
  for (const auto& thread : threads_) thread->AddCounts(&counts);
  return counts;
}

}  // namespace longhaul::relay
