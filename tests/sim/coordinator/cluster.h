// All parts of a simulation together: coordinator, store, workers, network and the users' calls.
// Threads: one, which runs the timeline (World::timeline). All times are virtual.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/client_calls.h"
#include "tests/sim/coordinator/pair/pair.h"
#include "tests/sim/coordinator/sim_coordinator.h"
#include "tests/sim/coordinator/sim_store.h"
#include "tests/sim/coordinator/sim_worker.h"
#include "tests/sim/coordinator/simulation.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

// ShortSpec makes a run of 20 steps. EndlessSpec makes a run of a million steps, which ends only if
// somebody stops it. IsEndless tells the two apart.
RunSpec ShortSpec(const std::string& name, uint32_t stages);
RunSpec EndlessSpec(const std::string& name, uint32_t stages);
bool IsEndless(const RunSpec& spec);

class Cluster {
 public:
  explicit Cluster(const SimulationOptions& options);

  // The coordinator that leads; the only one, if there are not two.
  SimCoordinator& leader() { return pair ? pair->leader() : *coordinator; }

  // Starts the coordinator at once, and each worker within a second.
  void Begin();

  // Users call the coordinator. The methods return at once; answers come in virtual time, and an
  // answer is lost if the coordinator dies. `resume`: go on with the run of the same name. `run`: a
  // run's id or name. `now` true: stop at once; false: after the current step.
  void Submit(const RunSpec& spec, bool resume);
  void PlanOnly(const RunSpec& spec);
  void Stop(const std::string& run, bool now);
  void CollectGarbage();
  void TakeSamples(const std::string& run);
  void SetReplicas(const std::string& run, uint32_t replicas);

  std::vector<std::string> RunNames() const { return {"run0", "run1", "run2"}; }
  // Returns the number of stored runs that have not ended.
  int64_t UnendedRuns() const;
  // True if no user's call waits for its answer.
  bool all_answered() const { return calls_open_ == 0; }
  // Checks that no call has made two runs, whatever its user was told.
  void CheckSubmissions();
  // Returns the state of unended runs and of all workers, for error messages.
  std::string Describe() const;

  World world;
  Checkers checkers;
  std::unique_ptr<SimStore> store;
  std::unique_ptr<SimCoordinator> coordinator;  // null: there are two (SimulationOptions::pair)
  std::unique_ptr<Pair> pair;                   // null: there is one
  std::vector<std::unique_ptr<SimWorker>> workers;
  // For each worker, a second process with the same identity, which somebody starts by mistake.
  std::vector<std::unique_ptr<SimWorker>> twins;
  // For each worker, the time until which it cannot open a session.
  std::vector<MonoTime> away_until;
  // The calls that are made again when their answer is lost.
  ClientCalls calls{
      &world, [this](const auto& make, SimCoordinator::Done done) { Ask(make, std::move(done)); }};

 private:
  void Ask(const std::function<Event(RequestId)>& make, SimCoordinator::Done done);
  // A worker has deleted its part of a checkpoint.
  void Dropped(const std::string& run, uint64_t step);

  uint64_t last_id_ = 0;
  // The ids of each call to submit, one for each try.
  std::vector<std::shared_ptr<std::vector<std::string>>> submitted_;
  uint64_t calls_open_ = 0;
};

}  // namespace longhaul::coordinator::sim
