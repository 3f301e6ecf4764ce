// What must hold of everything that the coordinator says and stores, judged from outside.
#ifndef LONGHAUL_TESTS_SIM_COORDINATOR_CHECKERS_H_
#define LONGHAUL_TESTS_SIM_COORDINATOR_CHECKERS_H_

#include <map>
#include <set>
#include <string>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/sim_worker.h"

namespace longhaul::coordinator::sim {

class Checkers {
 public:
  explicit Checkers(World* world) : world_(world) {}

  void Joined(SessionId session) { live_.insert(session); }
  void Left(SessionId session) { live_.erase(session); }
  void Asked(RequestId request) { open_.insert(request); }
  void Restarted();  // sessions and waiting requests die with the process

  void Check(const TickResult& result);
  bool all_answered() const { return open_.empty(); }

 private:
  void CheckRun(const RunRecord& record);
  void CheckCommand(const Command& command);
  void Answered(RequestId request);
  void Complain(std::string what) { world_->violations.push_back(std::move(what)); }

  World* const world_;
  std::set<SessionId> live_;
  std::set<RequestId> open_;
  std::map<RunId, RunRecord> records_;
  std::map<std::pair<RunId, uint64_t>, uint64_t> last_step_;  // by run and epoch
  uint64_t last_event_ = 0;
};

}  // namespace longhaul::coordinator::sim

#endif  // LONGHAUL_TESTS_SIM_COORDINATOR_CHECKERS_H_
