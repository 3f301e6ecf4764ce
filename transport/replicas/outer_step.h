// local-sgd (DiLoCo): replicas train alone for H inner steps from an anchor that all have; the mean
// of (anchor - parameters) over replicas is the gradient of an outer step with Nesterov's momentum,
//
//   m <- momentum x m + g,   anchor <- anchor - rate x (g + momentum x m),
//
// in fp32 at the owner of each shard. It travels while the next inner steps run. D = floor(delay x
// H) of them later each replica goes on from anchor + (parameters - parameters of then).
//
//   if (outer.IsDue(step)) {
//     outer.TakeDifferences(locals);
//     reducer->Begin(n, outer.memory());  // and all gradients are given
//   }
//   ... each bucket that is reduced: outer.StepMasters(bucket, reducer->Own(bucket)) ...
//   if (outer.MergeIsDue(step)) outer.Merge(locals);          // the reducer is done
//
// With D = 0 both are due at the same step. Threads: one at a time, and those that are lent.
// Errors: none; LH_CHECK for sizes.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_OUTER_STEP_H_
#define LONGHAUL_TRANSPORT_REPLICAS_OUTER_STEP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "codec/parallel.h"
#include "run/replicas/options.h"
#include "transport/replicas/memory.h"
#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

// D, above: the steps that a replica trains on between an outer step's beginning and its merge.
uint64_t DelaySteps(const LocalSgdOptions& options);

// In fp32, each operation rounded once, in the order above.
void NesterovStep(const LocalSgdOptions& options, std::span<const float> gradient,
                  std::span<float> momentum, std::span<float> anchor);

class OuterStep {
 public:
  // All replicas begin with these values, one span a parameter.
  // `parallel` outlives it. Null: the calling thread does all.
  OuterStep(const LocalSgdOptions& options, std::span<const std::span<const float>> values,
            codec::Parallel* parallel = nullptr);

  // After inner step `step`, the first one being 1.
  bool IsDue(uint64_t step) const { return step % options_.steps == 0; }
  bool MergeIsDue(uint64_t step) const;

  // Of the parameters as they are now.
  void TakeDifferences(std::span<const std::span<const float>> locals);
  // What all replicas have alike: those of the last outer step, by parameter.
  const std::vector<std::vector<float>>& anchors() const { return anchors_; }
  // Differences for gradients, anchors for values.
  std::vector<ParameterMemory> memory();
  // Of the reducer's bucket; always the same pieces. PrepareBucket comes first where State is
  // restored before the first step.
  void PrepareBucket(uint32_t bucket, std::span<const OwnPiece> own);
  void StepMasters(uint32_t bucket, std::span<const OwnPiece> own);
  void Merge(std::span<const std::span<float>> locals);
  // Of the own pieces of a bucket, in their order.
  std::vector<std::vector<float>>& momenta(uint32_t bucket) { return momenta_[bucket]; }

  // "anchor.K" and "taken.K" of parameter K, "momentum.B.K" of piece K of bucket B; momentum alone
  // of buckets that have been prepared or stepped.
  std::vector<StateTensor> State();

 private:
  const LocalSgdOptions options_;
  codec::Parallel* const parallel_;
  std::vector<std::vector<float>> anchors_, taken_, differences_;  // by parameter
  std::vector<std::vector<std::vector<float>>> momenta_;           // by bucket, by own piece
};

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_OUTER_STEP_H_
