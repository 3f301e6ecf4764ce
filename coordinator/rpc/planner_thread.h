// Computes plans and retuned plans off the shell's loop, because a search may take seconds. Some
// threads do one computation each at a time, so that a long search of one run keeps no other run
// waiting. After kLongestSearch a search ends with the best plan that it has found. Computations
// begin in the order of requests, but all waiting plans come before all waiting retuned plans,
// because a run that waits for a plan has reserved its workers.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "coordinator/state/state.h"
#include "planner/planner.h"
#include "planner/retune.h"
#include "run/schedule/search_limit.h"

namespace longhaul::coordinator {

// How long a search may look for a better plan, in CPU time of its thread: a busy machine then
// finds the same plans as an idle one.
inline constexpr absl::Duration kLongestSearch = absl::Seconds(5);
// Returns the CPU time of the calling thread.
MonoTime ThreadTime();

// The functions that compute plans; tests replace them. They should end soon after a stop is
// requested, and once the limit is over.
struct Planner {
  std::function<StatusOr<Plan>(const PlanRequest&, const std::stop_token&)> plan = MakePlan;
  std::function<StatusOr<std::optional<Plan>>(const RunSpec&, const Plan&, const Seen&,
                                              const std::stop_token&, const schedule::SearchLimit&)>
      retune = Retune;
  // The clock of the limit, called on the thread that computes.
  std::function<MonoTime()> now = ThreadTime;
};

// Totals since the start. Plans and retuned plans are counted apart. Retuning adapts the plan of a
// running run to another number of microbatches in flight.
struct PlannerUse {
  uint64_t plans = 0, retunes = 0;
  double plan_seconds = 0, retune_seconds = 0;
};

// Thread-safe.
class PlannerThreads {
 public:
  // Calls `done` with each result (event::PlanComputed or event::RetuneComputed, with the error if
  // the computation failed), on the thread that computes. A computation that was cancelled before
  // its end has no result.
  // `threads`: how many compute at a time; 0: as many as MostAtOnce() says.
  PlannerThreads(Planner planner, std::function<void(Event)> done, size_t threads = 0);
  // Tells the current computations to stop, and waits for them.
  ~PlannerThreads();

  // After Stop, does nothing.
  void Add(command::ComputePlan asked);
  void Add(command::ComputeRetune asked);
  // Cancels a computation. If it runs, it stops soon. If it waits, it never begins.
  void Cancel(ComputationId id);
  PlannerUse Use() const;
  // Cancels all computations, and ignores later ones. Does not wait.
  void Stop();
  // How many searches this machine computes at a time: 2 to 4. With more than two cores, one stays
  // for the rest.
  static size_t MostAtOnce();

 private:
  struct Computation {
    ComputationId id;
    bool is_awaited = false;  // a plan: workers are reserved meanwhile
    bool has_begun = false;
    std::function<Event(const std::stop_token&)> run;
    std::stop_source stop;
  };
  void Add(ComputationId id, bool is_awaited, std::function<Event(const std::stop_token&)> run);
  void Run();
  schedule::SearchLimit LimitFromNow() const;
  void Count(bool is_plan, double seconds);

  const Planner planner_;
  const std::function<void(Event)> done_;
  mutable std::mutex mutex_;  // guards the four members below
  PlannerUse use_;
  std::condition_variable changed_;
  std::list<Computation> computations_;  // those that wait, in the order in which they begin, and
                                         // among them those under way
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::coordinator
