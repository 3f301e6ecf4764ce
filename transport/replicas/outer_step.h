// local-sgd (DiLoCo): data-parallel replicas train alone for H inner steps from a common anchor.
// The mean of (anchor - parameters) over replicas is the gradient of an outer step with Nesterov's
// momentum,
//
//   m <- momentum x m + g,   anchor <- anchor - rate x (g + momentum x m),
//
// computed in fp32 by the owner of each shard. The result travels while the next inner steps run. D
// = floor(delay x H) inner steps after the outer step began, each replica continues from anchor +
// (parameters - parameters at that time).
//
//   if (outer.IsDue(step)) {
//     outer.TakeDifferences(locals);
//     reducer->Begin(n, outer.memory());  // and all gradients are given
//   }
//   ... each bucket that is reduced: outer.StepMasters(bucket, reducer->Own(bucket)) ...
//   if (outer.MergeIsDue(step)) outer.Merge(locals);          // the reducer is done
//
// With D = 0 both are due at the same step. Threads: one caller at a time, and the threads of
// `parallel`. Errors: none; LH_CHECK for sizes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/parallel.h"
#include "run/replicas/options.h"
#include "transport/replicas/memory.h"
#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

// Returns D: the steps that a replica trains between an outer step's beginning and its merge.
uint64_t DelaySteps(const LocalSgdOptions& options);

// Computes in fp32 in the order given above, each operation rounded once.
void NesterovStep(const LocalSgdOptions& options, std::span<const float> gradient,
                  std::span<float> momentum, std::span<float> anchor);

class OuterStep {
 public:
  // `values`: the parameters with which all replicas begin, one span each. `parallel` outlives this
  // object. Null: the calling thread does everything.
  OuterStep(const LocalSgdOptions& options, std::span<const std::span<const float>> values,
            codec::Parallel* parallel = nullptr);

  // True after inner step `step`, counted from 1, if an outer step begins then.
  bool IsDue(uint64_t step) const { return step % options_.steps == 0; }
  bool MergeIsDue(uint64_t step) const;

  // Takes the differences of the anchors and the current parameters.
  void TakeDifferences(std::span<const std::span<const float>> locals);
  // The parameters that all replicas share: the result of the last outer step.
  const std::vector<std::vector<float>>& anchors() const { return anchors_; }
  // The reducer's memory: differences as gradients, anchors as values.
  std::vector<ParameterMemory> memory();
  // `own`: the reducer's pieces of the bucket, the same at each call. Call PrepareBucket first if
  // State is restored before the first step.
  void PrepareBucket(uint32_t bucket, std::span<const OwnPiece> own);
  void StepMasters(uint32_t bucket, std::span<const OwnPiece> own);
  void Merge(std::span<const std::span<float>> locals);
  // Momentum of the own pieces of a bucket, in their order.
  std::vector<std::vector<float>>& momenta(uint32_t bucket) { return momenta_[bucket]; }

  // State for a checkpoint: "anchor.K" and "taken.K" for parameter K, "momentum.B.K" for piece K of
  // bucket B. Momentum exists only for buckets that were prepared or stepped.
  std::vector<StateTensor> State();

 private:
  const LocalSgdOptions options_;
  codec::Parallel* const parallel_;
  std::vector<std::vector<float>> anchors_, taken_, differences_;  // by parameter
  std::vector<std::vector<std::vector<float>>> momenta_;           // by bucket, by own piece
};

}  // namespace longhaul::replicas
