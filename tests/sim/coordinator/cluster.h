// Everything that is simulated, put together, and the users' side of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/sim_coordinator.h"
#include "tests/sim/coordinator/sim_store.h"
#include "tests/sim/coordinator/sim_worker.h"
#include "tests/sim/coordinator/simulation.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

// A run that ends by itself, and one that has to be stopped.
RunSpec ShortSpec(const std::string& name, uint32_t stages);
RunSpec EndlessSpec(const std::string& name, uint32_t stages);
bool IsEndless(const RunSpec& spec);

class Cluster {
 public:
  explicit Cluster(const SimulationOptions& options);

  // All processes start.
  void Begin();

  // Users' calls.
  void Submit(const RunSpec& spec, bool resume);
  void PlanOnly(const RunSpec& spec);
  void Stop(const std::string& run, bool now);
  void CollectGarbage();
  void SetReplicas(const std::string& run, uint32_t replicas);

  std::vector<std::string> RunNames() const { return {"run0", "run1", "run2"}; }
  int64_t UnendedRuns() const;
  bool all_answered() const { return calls_open_ == 0; }
  std::string Describe() const;

  World world;
  Checkers checkers;
  std::unique_ptr<SimStore> store;
  std::unique_ptr<SimCoordinator> coordinator;
  std::vector<std::unique_ptr<SimWorker>> workers;
  std::vector<std::unique_ptr<SimWorker>> twins;  // of each; they run for a while, by mistake
  // Workers whose way to the coordinator is closed.
  std::vector<MonoTime> away_until;

 private:
  void Ask(const std::function<Event(RequestId)>& make, SimCoordinator::Done done);

  uint64_t last_id_ = 0;
  uint64_t calls_open_ = 0;
};

}  // namespace longhaul::coordinator::sim
