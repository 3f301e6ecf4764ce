// Which tokens a microbatch has: a pure function of the plan, so the first stage (inputs) and the
// last (targets) agree without talking, and a resumed run goes on exactly where it was.
//
// One thread at a time.
#ifndef LONGHAUL_WORKER_PIPELINE_BATCHES_H_
#define LONGHAUL_WORKER_PIPELINE_BATCHES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "run/data/sample_order.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "worker/data/window_source.h"
#include "worker/pipeline/pass.h"

namespace longhaul::worker {

// What all replicas of a run have read by the end of a step. The number of replicas may have
// changed before that, so it does not follow from the step.
struct ReadSoFar {
  uint64_t step = 0, microbatches = 0;
};
ReadSoFar ReadBefore(const Assignment& assignment, const RunSpec& spec);

// Which windows of the training text the sequences of a microbatch are. The same on every stage.
// One thread at a time, and no other copy meanwhile.
struct SampleOrder {
  std::shared_ptr<data::SampleOrder> windows;
  uint32_t microbatches = 0, microbatch_size = 0;  // of a replica's step, and of these
  // The replica that reads, and how many there are. A step has the microbatches of replica 0, then
  // those of replica 1, and so on. One replica with as many microbatches in all reads the same.
  uint32_t replica = 0, replicas = 1;
  ReadSoFar before = {};  // these steps

  // The number of the step's first microbatch, and of this replica's, counted over the run.
  uint64_t FirstOfAll(Step step) const {
    return before.microbatches + (step.value() - 1 - before.step) * replicas * microbatches;
  }
  uint64_t FirstMicrobatchOf(Step step) const {
    return FirstOfAll(step) + uint64_t{replica} * microbatches;
  }
  uint64_t WindowOf(Step step, Microbatch microbatch, uint32_t row) const {
    return WindowOfAll(step, uint64_t{replica} * microbatches + microbatch.value(), row);
  }
  // `microbatch` counts those of all replicas in this step.
  uint64_t WindowOfAll(Step step, uint64_t microbatch, uint32_t row) const {
    return windows->WindowOf((FirstOfAll(step) + microbatch) * microbatch_size + row);
  }
};
// `mixture`: the data sets that the run reads; null: a token file with `windows` windows.
SampleOrder SampleOrderOf(const RunSpec& spec, const data::Mixture* mixture, uint64_t windows,
                          uint32_t replica, const ReadSoFar& before = {});

class Batches {
 public:
  // `mixture` as SampleOrderOf's.
  Batches(const RunSpec& spec, std::shared_ptr<WindowSource> source, const data::Mixture* mixture,
          uint32_t replica = 0, const ReadSoFar& before = {});

  // microbatch_size x context ids each, valid until the next call.
  struct Tokens {
    std::span<const int32_t> inputs, targets;
    // With data.mask: document: of each token the number of its document among those of its row.
    std::span<const int32_t> documents;
    // With loss masks: the targets that count in the whole pass, of all replicas, by its
    // microbatches; else 0.
    double counted = 0;
  };
  // Not OK where the data cannot be had.
  StatusOr<Tokens> Read(const Pass& pass, Microbatch microbatch);

 private:
  // Microbatches of the pass.
  uint32_t MicrobatchesOf(const Pass& pass) const;
  // `microbatch`: of this replica's, in training.
  uint64_t WindowOf(const Pass& pass, uint64_t microbatch, uint64_t row) const;
  Status Count(const Pass& pass);
  void Expect(const Pass& pass);

  const RunSpec spec_;
  const std::shared_ptr<WindowSource> source_;
  const SampleOrder order_;
  const uint64_t validation_windows_;
  Status ReadRow(const Pass& pass, uint64_t window, std::span<int32_t> inputs,
                 std::span<int32_t> targets);
  void FindDocuments();

  std::optional<uint32_t> end_token_;  // with data.mask: document
  std::vector<int32_t> inputs_, targets_, documents_;
  std::optional<Pass> pass_;  // that is read
  double counted_ = 0;
};

// Microbatches of a validation pass: the run file's samples, in whole microbatches, at least one
// and at most what the validation text has. 0 when validation is off.
uint32_t ValidationMicrobatches(const RunSpec& spec, uint64_t validation_tokens);
uint32_t ValidationMicrobatchesOf(const RunSpec& spec, uint64_t windows);

// Whether validation follows the training of `step`: every `validation.every` steps and after the
// last. Step 0: before the first, where the run file says so or there is no step.
bool ValidatesAfter(const RunSpec& spec, Step step);
// Whether a clean one follows that, where links compress activations.
bool ValidatesCleanAfter(const RunSpec& spec, Step step);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_BATCHES_H_
