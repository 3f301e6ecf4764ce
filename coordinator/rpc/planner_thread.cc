#include "coordinator/rpc/planner_thread.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"

namespace longhaul::coordinator {
namespace {

// What `compute` returns, or what it threw as a Status.
template <class Result, class Compute>
StatusOr<Result> Computed(std::string_view what, const Compute& compute) {
  const MonoTime start = Now();
  StatusOr<Result> result = absl::UnknownError("not computed");
  try {
    result = compute();
  } catch (const std::exception& error) {
    result = FromException(what, error);
  }
  LogDebug("{} took {}", what, absl::FormatDuration(Now() - start));
  return result;
}

}  // namespace

PlannerThread::PlannerThread(Planner planner, std::function<void(Event)> done)
    : planner_(std::move(planner)), done_(std::move(done)), thread_([this] { Run(); }) {}

PlannerThread::~PlannerThread() {
  Stop();
  thread_.join();
}

void PlannerThread::Add(command::ComputePlan asked) {
  const ComputationId id = asked.id;
  Add(id, /*is_awaited=*/true,
      [this, asked = std::move(asked)](const std::stop_token& stop) -> Event {
        return event::PlanComputed{asked.id, Computed<Plan>("computing a plan", [&] {
                                     return planner_.plan(asked.request, stop);
                                   })};
      });
}

void PlannerThread::Add(command::ComputeRetune asked) {
  const ComputationId id = asked.id;
  Add(id, /*is_awaited=*/false,
      [this, asked = std::move(asked)](const std::stop_token& stop) -> Event {
        return event::RetuneComputed{
            asked.id, Computed<std::optional<Plan>>("computing other depths", [&] {
              return planner_.retune(asked.spec, asked.plan, asked.seen, stop);
            })};
      });
}

void PlannerThread::Add(ComputationId id, bool is_awaited,
                        std::function<Event(const std::stop_token&)> run) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  // Before the first one that nobody waits for; behind that under way.
  auto place = computations_.end();
  if (is_awaited && !computations_.empty()) {
    place = std::find_if(std::next(computations_.begin()), computations_.end(),
                         [](const Computation& one) { return !one.is_awaited; });
  }
  computations_.insert(place, {id, is_awaited, std::move(run), std::stop_source()});
  changed_.notify_all();
}

void PlannerThread::Cancel(ComputationId id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(computations_, id, &Computation::id);
  // One that has not begun finds out as soon as it does.
  if (found != computations_.end()) found->stop.request_stop();
}

void PlannerThread::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (Computation& one : computations_) one.stop.request_stop();
  changed_.notify_all();
}

PlannerUse PlannerThread::Use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void PlannerThread::Count(bool is_plan, double seconds) {
  const std::lock_guard lock(mutex_);
  ++(is_plan ? use_.plans : use_.retunes);
  (is_plan ? use_.plan_seconds : use_.retune_seconds) += seconds;
}

void PlannerThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !computations_.empty(); });
    if (stopping_) return;
    Computation& first = computations_.front();  // stays where it is while others are added
    const std::stop_token stop = first.stop.get_token();
    if (!stop.stop_requested()) {
      const bool is_plan = first.is_awaited;
      lock.unlock();
      const MonoTime began = Now();
      Event event = first.run(stop);
      Count(is_plan, absl::ToDoubleSeconds(Now() - began));
      if (!stop.stop_requested()) done_(std::move(event));
      lock.lock();
    }
    computations_.pop_front();
  }
}

}  // namespace longhaul::coordinator
