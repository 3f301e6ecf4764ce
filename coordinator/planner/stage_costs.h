// What a stage takes on a worker: time, as it was measured there, and memory. Pure; remembers sizes
// that it was asked for, so it is for one thread.
#ifndef LONGHAUL_COORDINATOR_PLANNER_STAGE_COSTS_H_
#define LONGHAUL_COORDINATOR_PLANNER_STAGE_COSTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "coordinator/planner/memory.h"
#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {

// What a worker timed of a stage with the run's number of ranks. Null: nothing; of one rank there
// is none.
const v1::GroupTimes* TimesOfGroup(const CandidateWorker& worker, const GroupSpec& wanted);

class StageCosts {
 public:
  // Keeps a reference to `spec`.
  StageCosts(const RunSpec& spec, uint32_t vocabulary) : spec_(spec), vocabulary_(vocabulary) {}

  // A stage of so many layers, at the ends of the model or not.
  struct Stage {
    const CandidateWorker& worker;
    Roles roles;
    uint32_t layers = 0;
  };

  // Seconds, of one microbatch and of a step.
  double Forward(const Stage& stage) const;
  double Backward(const Stage& stage) const;
  double Optimizer(const Stage& stage) const;
  // nullopt: one rank.
  std::optional<GroupEstimate> EstimateOfGroup(const Stage& stage) const;

  const StageMemory& Memory(const Stage& stage) const { return SizeOf(stage).memory; }
  // What a stage needs at least of one kind of memory, and its worker has of that. 0: unknown.
  struct Need {
    uint64_t needed = 0, available = 0;
    bool fits() const { return available == 0 || needed <= available; }
    double ratio() const {
      return available == 0 ? 0 : static_cast<double>(needed) / static_cast<double>(available);
    }
  };
  Need OfDevice(const Stage& stage, uint32_t depth) const;
  Need OfHost(const Stage& stage) const;
  bool Fits(const Stage& stage, uint32_t depth) const {
    return OfDevice(stage, depth).fits() && OfHost(stage).fits();
  }
  // The depth that a stage must be able to hold, with so many stages from itself on.
  uint32_t LeastDepth(uint32_t stages_from_here) const;
  // The most that it holds, `least` or more. It is `least` where the run file leaves no choice.
  uint32_t DepthOf(const Stage& stage, uint32_t least) const;

 private:
  // What the stage's part of the model takes. A model with many experts has so many parameters that
  // to sum them up anew for every split takes longer than all else.
  struct Size {
    StageMemory memory;
    uint64_t parameters = 0;
  };
  const Size& SizeOf(const Stage& stage) const;
  // How often a stage of so many layers has what a group's `ends` are, beside those that are in the
  // times of its embedding and its head: -1 where it has both of these.
  int Ends(const Stage& stage) const;

  const RunSpec& spec_;
  const uint32_t vocabulary_;
  // By layers, embedding, head, and whether it is on a GPU.
  mutable std::map<std::tuple<uint32_t, bool, bool, bool>, Size> sizes_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_STAGE_COSTS_H_
