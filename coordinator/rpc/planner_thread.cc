#include "coordinator/rpc/planner_thread.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

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

MonoTime ThreadTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);  // cannot fail: the clock exists everywhere
  return MonoTime::FromNanoseconds(used.tv_sec * 1'000'000'000 + used.tv_nsec);
}

size_t PlannerThreads::MostAtOnce() {
  constexpr size_t kLeast = 2, kMost = 4;
  const size_t cores = std::thread::hardware_concurrency();
  return std::clamp<size_t>(cores > 0 ? cores - 1 : 1, kLeast, kMost);
}

PlannerThreads::PlannerThreads(Planner planner, std::function<void(Event)> done, size_t threads)
    : planner_(std::move(planner)), done_(std::move(done)) {
  if (threads == 0) threads = MostAtOnce();
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

PlannerThreads::~PlannerThreads() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

schedule::SearchLimit PlannerThreads::LimitFromNow() const {
  const MonoTime end = planner_.now() + kLongestSearch;
  return {[this, end] { return planner_.now() >= end; },
          "after " + FormatSeconds(absl::ToDoubleSeconds(kLongestSearch))};
}

void PlannerThreads::Add(command::ComputePlan asked) {
  const ComputationId id = asked.id;
  Add(id, /*is_awaited=*/true,
      [this, asked = std::move(asked)](const std::stop_token& stop) mutable -> Event {
        asked.request.limit = LimitFromNow();
        return event::PlanComputed{asked.id, Computed<Plan>("computing a plan", [&] {
                                     return planner_.plan(asked.request, stop);
                                   })};
      });
}

void PlannerThreads::Add(command::ComputeRetune asked) {
  const ComputationId id = asked.id;
  Add(id, /*is_awaited=*/false,
      [this, asked = std::move(asked)](const std::stop_token& stop) -> Event {
        return event::RetuneComputed{
            asked.id, Computed<std::optional<Plan>>("computing other depths", [&] {
              return planner_.retune(asked.spec, asked.plan, asked.seen, stop, LimitFromNow());
            })};
      });
}

void PlannerThreads::Add(ComputationId id, bool is_awaited,
                         std::function<Event(const std::stop_token&)> run) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  // Before the first that waits and that nobody waits for.
  auto place = computations_.end();
  if (is_awaited) {
    place = std::ranges::find_if(
        computations_, [](const Computation& one) { return !one.is_awaited && !one.has_begun; });
  }
  computations_.insert(place,
                       {.id = id, .is_awaited = is_awaited, .run = std::move(run), .stop = {}});
  changed_.notify_all();
}

void PlannerThreads::Cancel(ComputationId id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(computations_, id, &Computation::id);
  // A computation that has not begun finds out as soon as it does.
  if (found != computations_.end()) found->stop.request_stop();
}

void PlannerThreads::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (Computation& one : computations_) one.stop.request_stop();
  changed_.notify_all();
}

PlannerUse PlannerThreads::Use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void PlannerThreads::Count(bool is_plan, double seconds) {
  const std::lock_guard lock(mutex_);
  ++(is_plan ? use_.plans : use_.retunes);
  (is_plan ? use_.plan_seconds : use_.retune_seconds) += seconds;
}

void PlannerThreads::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    auto next = computations_.end();
    changed_.wait(lock, [&] {
      next = std::ranges::find(computations_, false, &Computation::has_begun);
      return stopping_ || next != computations_.end();
    });
    if (stopping_) return;
    next->has_begun = true;  // it stays where it is while others come and go
    const std::stop_token stop = next->stop.get_token();
    if (!stop.stop_requested()) {
      const bool is_plan = next->is_awaited;
      lock.unlock();
      const MonoTime began = Now();
      Event event = next->run(stop);
      Count(is_plan, absl::ToDoubleSeconds(Now() - began));
      if (!stop.stop_requested()) done_(std::move(event));
      lock.lock();
    }
    computations_.erase(next);
  }
}

}  // namespace longhaul::coordinator
