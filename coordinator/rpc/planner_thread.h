// Plans and retuned plans, computed off the loop: a search may take seconds. One thread, one
// computation at a time, in the order in which they were asked for, but that plans, for which
// workers are held, come before retuned ones.
#ifndef LONGHAUL_COORDINATOR_RPC_PLANNER_THREAD_H_
#define LONGHAUL_COORDINATOR_RPC_PLANNER_THREAD_H_

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>

#include "coordinator/planner/planner.h"
#include "coordinator/planner/retune.h"
#include "coordinator/state/state.h"

namespace longhaul::coordinator {

// What computes; tests put other functions here.
struct Planner {
  std::function<StatusOr<Plan>(const PlanRequest&, const std::stop_token&)> plan = MakePlan;
  std::function<StatusOr<std::optional<Plan>>(const RunSpec&, const Plan&, const Seen&,
                                              const std::stop_token&)>
      retune = Retune;
};

// What was computed since the start: plans, and other depths for plans that there are.
struct PlannerUse {
  uint64_t plans = 0, retunes = 0;
  double plan_seconds = 0, retune_seconds = 0;
};

// Thread-safe.
class PlannerThread {
 public:
  // `done` runs on this thread, and for nothing that was cancelled before it ended.
  PlannerThread(Planner planner, std::function<void(Event)> done);
  // Waits for the computation under way, which is told to stop.
  ~PlannerThread();

  void Add(command::ComputePlan asked);
  void Add(command::ComputeRetune asked);
  // Ends it soon where it is under way, else it does not begin.
  void Cancel(ComputationId id);
  PlannerUse Use() const;
  // Cancels all, once and for ever. Does not wait.
  void Stop();

 private:
  struct Computation {
    ComputationId id;
    bool is_awaited = false;  // workers are held meanwhile
    std::function<Event(const std::stop_token&)> run;
    std::stop_source stop;
  };
  void Add(ComputationId id, bool is_awaited, std::function<Event(const std::stop_token&)> run);
  void Run();
  void Count(bool is_plan, double seconds);

  const Planner planner_;
  const std::function<void(Event)> done_;
  mutable std::mutex mutex_;  // of the next four
  PlannerUse use_;
  std::condition_variable changed_;
  std::list<Computation> computations_;  // the first one is under way
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_PLANNER_THREAD_H_
