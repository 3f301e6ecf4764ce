// Workers of a simulated cluster: they do what a worker's contract with the coordinator says, and
// share a world that knows what really happened (which shards are on disk, who finished what).
#ifndef LONGHAUL_TESTS_SIM_COORDINATOR_SIM_WORKER_H_
#define LONGHAUL_TESTS_SIM_COORDINATOR_SIM_WORKER_H_

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/state/state.h"

namespace longhaul::coordinator::sim {

using Random = std::mt19937_64;
inline bool Chance(Random& random, double p) {
  return std::uniform_real_distribution<double>(0, 1)(random) < p;
}

// What every simulated run trains.
RunSpec SimSpec(const std::string& name, uint32_t stages);

struct EpochKey {
  std::string run;
  uint64_t epoch = 0;
  auto operator<=>(const EpochKey&) const = default;
};

// What the stages of one epoch have in common: the data path, which the coordinator does not see.
struct EpochTruth {
  uint32_t stages = 0;
  std::map<uint32_t, uint64_t> step;  // by stage; a stage that has dropped the epoch is not in here
  std::set<uint32_t> finished;
  std::optional<uint64_t> stop_at;
};

struct World {
  std::map<EpochKey, EpochTruth> epochs;
  // (run, step, stage, worker id): shards that lie on a worker's disk, and survive its processes.
  std::set<std::tuple<std::string, uint64_t, uint32_t, std::string>> shards;
  // What must never happen; the test fails with these.
  std::vector<std::string> violations;
};

struct Faults {
  double error = 0;      // a step ends with an error
  double link = 0;       // a data link breaks and does not come back
  double nonfinite = 0;  // a step's loss is NaN
};

class SimWorker {
 public:
  SimWorker(std::string name, World* world) : name_(std::move(name)), world_(world) {}

  v1::Hello Hello() const;
  // The process dies and another starts; the disk stays.
  void Crash();
  void Receive(const v1::WorkerCommand& command);
  // Lets it work for a moment.
  void Work(MonoTime now, const Faults& faults, Random& random);
  // What it wants to say, oldest first; the caller takes it.
  std::deque<v1::WorkerMessage> outbox;

  const std::string& name() const { return name_; }

 private:
  struct Assigned {
    EpochKey key;
    uint32_t stage = 0;
    v1::Plan plan;
    bool started = false;
  };
  void Assign(const EpochKey& key, const v1::Assign& assign);
  void DropEpoch();
  void Say(const EpochKey& key, v1::WorkerMessage message);
  void SayError(const std::string& text, std::optional<uint32_t> lost_peer);
  void OneStep(const Faults& faults, Random& random);
  void WriteShard(uint64_t step);

  const std::string name_;
  World* const world_;
  int incarnation_ = 1;
  std::optional<Assigned> assigned_;
  MonoTime last_heartbeat_;
};

}  // namespace longhaul::coordinator::sim

#endif  // LONGHAUL_TESTS_SIM_COORDINATOR_SIM_WORKER_H_
