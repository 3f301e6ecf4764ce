// local-sgd (DiLoCo): data-parallel replicas train alone for H inner steps from a common anchor.
// The mean of (anchor - parameters) over replicas is the gradient of an outer step with Nesterov's
// momentum,
//
//   m <- momentum x m + g,   anchor <- anchor - rate x (g + momentum x m),
//
// computed in fp32 by the owner of each shard (layout.h). The gradients and the result travel while
// the next inner steps run. D = floor(delay x H) inner steps after the outer step began, each
// replica merges the result: it continues from anchor + (its parameters now - its parameters when
// the outer step began).
//
//   if (outer.IsDue(step)) {
//     outer.TakeDifferences(locals);
//     reducer->Begin(n, outer.memory());  // and give the gradients of all buckets
//   }
//   // For each bucket, once it is reduced:
//   outer.StepMasters(bucket, reducer->Own(bucket));
//   reducer->GiveParameters(bucket);
//   // Once the reducer is done:
//   if (outer.MergeIsDue(step)) outer.Merge(locals);
//
// If D = 0, IsDue and MergeIsDue return true at the same step. H, delay, rate and momentum are
// fields of LocalSgdOptions; H is `steps`.
//
// Threads: one call at a time; a call uses the threads of `parallel`. Errors: none; wrong sizes end
// the process (LH_CHECK).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/parallel.h"
#include "run/replicas/options.h"
#include "transport/replicas/memory.h"
#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

// Returns D: the inner steps between an outer step's beginning and its merge.
uint64_t DelaySteps(const LocalSgdOptions& options);

// Updates `momentum` and `anchor` in fp32 by the formula above, each operation rounded once.
void NesterovStep(const LocalSgdOptions& options, std::span<const float> gradient,
                  std::span<float> momentum, std::span<float> anchor);

class OuterStep {
 public:
  // `values`: the parameters with which all replicas begin, one span for each parameter. `parallel`
  // must outlive this object; null: the calling thread does everything.
  OuterStep(const LocalSgdOptions& options, std::span<const std::span<const float>> values,
            codec::Parallel* parallel = nullptr);

  // Returns true if an outer step begins after inner step `step`, counted from 1.
  bool IsDue(uint64_t step) const { return step % options_.steps == 0; }
  // Returns true if the last outer step's result is merged after inner step `step`.
  bool MergeIsDue(uint64_t step) const;

  // Begins an outer step. `locals`: this replica's present parameters. Computes the differences
  // anchors - `locals`, and keeps a copy of `locals`.
  void TakeDifferences(std::span<const std::span<const float>> locals);
  // The parameters that all replicas share: the result of the last complete outer step, or the
  // initial values.
  const std::vector<std::vector<float>>& anchors() const { return anchors_; }
  // Returns the memory for Reducer::Begin: differences as gradients, anchors as values. Valid as
  // long as this object.
  std::vector<ParameterMemory> memory();
  // Makes the momenta of a bucket, zeros at first. `own`: the result of Reducer::Own. Call it only
  // to restore State before the first step; otherwise StepMasters makes them.
  void PrepareBucket(uint32_t bucket, std::span<const OwnPiece> own);
  // Updates the masters of `own` by their gradients with Nesterov's momentum.
  void StepMasters(uint32_t bucket, std::span<const OwnPiece> own);
  // Sets each parameter in `locals` to anchor + (the parameter - its copy from TakeDifferences).
  void Merge(std::span<const std::span<float>> locals);
  // The momenta of a bucket's own pieces, in the order of pieces.
  std::vector<std::vector<float>>& momenta(uint32_t bucket) { return momenta_[bucket]; }

  // Returns the state for a checkpoint: "anchor.K" and "taken.K" (the copy of TakeDifferences) for
  // parameter K, "momentum.B.K" for own piece K of bucket B. Momenta exist only for buckets that
  // PrepareBucket or StepMasters got. The spans are valid as long as this object.
  std::vector<StateTensor> State();

 private:
  const LocalSgdOptions options_;
  codec::Parallel* const parallel_;
  std::vector<std::vector<float>> anchors_, taken_, differences_;  // by parameter
  std::vector<std::vector<std::vector<float>>> momenta_;           // by bucket, by own piece
};

}  // namespace longhaul::replicas
