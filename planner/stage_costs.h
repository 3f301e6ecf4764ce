// Time and memory of a stage on a worker, by the worker's measured times. Pure; caches sizes, so it
// is for one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "planner/memory.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// Returns the worker's measured times of a stage that is shared by the ranks of a group like
// `wanted`. The times are for all ranks together, with their collectives. Null: the worker measured
// no such group, or the group has one rank. The pointer points into `worker`.
const v1::GroupTimes* TimesOfGroup(const CandidateWorker& worker, const GroupSpec& wanted);

class StageCosts {
 public:
  // Keeps a reference to `spec`. `vocabulary`: number of the tokenizer's tokens.
  StageCosts(const RunSpec& spec, uint32_t vocabulary) : spec_(spec), vocabulary_(vocabulary) {}

  // A stage on a worker, with its number of layers and whether it has embedding or head.
  struct Stage {
    const CandidateWorker& worker;
    Roles roles;
    uint32_t layers = 0;
  };

  // Seconds of one microbatch (Forward, Backward) and of a step (Optimizer).
  double Forward(const Stage& stage) const;
  double Backward(const Stage& stage) const;
  double Optimizer(const Stage& stage) const;
  // The estimate of what the ranks of the stage's group send each other. nullopt: one rank, or the
  // worker did not measure such a group.
  std::optional<GroupEstimate> EstimateOfGroup(const Stage& stage) const;

  // The reference is valid as long as this object.
  const StageMemory& Memory(const Stage& stage) const { return SizeOf(stage).memory; }
  // Bytes of one kind of memory: what a stage needs, and what its worker has (0: unknown, assumed
  // to suffice).
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
  // The minimum number of microbatches in flight that a stage must be able to hold.
  // `stages_from_here` counts this stage and all stages after it.
  uint32_t LeastDepth(uint32_t stages_from_here) const;
  // The maximum number of microbatches in flight that a stage's memory holds, at least `least`;
  // exactly `least` if the run file or the schedule leaves no choice.
  uint32_t DepthOf(const Stage& stage, uint32_t least) const;

 private:
  // Cached, because a model with many experts has so many parameters that summing them up for every
  // split took longer than the rest of a plan.
  struct Size {
    StageMemory memory;
    uint64_t parameters = 0;
  };
  const Size& SizeOf(const Stage& stage) const;
  // How many times to add a group's `ends` (the exchanges before and after a stage's layers) to the
  // times of its parts. The times of embedding and head include theirs; so this may be negative.
  int Ends(const Stage& stage) const;

  const RunSpec& spec_;
  const uint32_t vocabulary_;
  // Keys: layers, embedding, head, on a GPU.
  mutable std::map<std::tuple<uint32_t, bool, bool, bool>, Size> sizes_;
};

}  // namespace longhaul::coordinator
