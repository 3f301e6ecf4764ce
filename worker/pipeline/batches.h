// Chooses and reads the tokens of each microbatch. The choice is a pure function of the plan, so
// the first stage (inputs) and the last (targets) agree without messages, and a resumed run goes on
// exactly where it stopped.
//
// Threads: one at a time.
#pragma once

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

// Microbatches that all replicas have read by the end of a step. Not a function of the step alone,
// as the number of replicas may have changed.
struct ReadSoFar {
  uint64_t step = 0, microbatches = 0;
};
ReadSoFar ReadBefore(const Assignment& assignment, const RunSpec& spec);

// Maps the sequences of a microbatch to windows of the training text; the same on every stage. One
// thread at a time; meanwhile no other copy may be used.
struct SampleOrder {
  std::shared_ptr<data::SampleOrder> windows;
  uint32_t microbatches = 0, microbatch_size = 0;  // per replica and step; sequences each
  // The replica that reads, and the number of replicas. A step reads the microbatches of replica 0,
  // then of replica 1, and so on; one replica with as many microbatches in total reads the same.
  uint32_t replica = 0, replicas = 1;
  ReadSoFar before = {};  // steps and microbatches before these replicas

  // Returns the index of the first microbatch of the step (FirstOfAll), or of this replica in the
  // step, counted over the run.
  uint64_t FirstOfAll(Step step) const {
    return before.microbatches + (step.value() - 1 - before.step) * replicas * microbatches;
  }
  uint64_t FirstMicrobatchOf(Step step) const {
    return FirstOfAll(step) + uint64_t{replica} * microbatches;
  }
  uint64_t WindowOf(Step step, Microbatch microbatch, uint32_t row) const {
    return WindowOfAll(step, uint64_t{replica} * microbatches + microbatch.value(), row);
  }
  // `microbatch`: index over all replicas of the step.
  uint64_t WindowOfAll(Step step, uint64_t microbatch, uint32_t row) const {
    return windows->WindowOf((FirstOfAll(step) + microbatch) * microbatch_size + row);
  }
};
// `mixture`: the data sets of the run; null: a token file with `windows` windows.
SampleOrder SampleOrderOf(const RunSpec& spec, const data::Mixture* mixture, uint64_t windows,
                          uint32_t replica, const ReadSoFar& before = {});

class Batches {
 public:
  // `mixture`: as for SampleOrderOf.
  Batches(const RunSpec& spec, std::shared_ptr<WindowSource> source, const data::Mixture* mixture,
          uint32_t replica = 0, const ReadSoFar& before = {});

  // Tokens of one microbatch: microbatch_size x context ids each, valid until the next call.
  struct Tokens {
    std::span<const int32_t> inputs, targets;
    // With data.mask: document: for each token the number of its document in its row.
    std::span<const int32_t> documents;
    // With loss masks: the number of targets that count in the pass over all replicas, divided by
    // the number of microbatches. Else 0.
    double counted = 0;
  };
  // Reads a microbatch. Returns an error if the data cannot be read.
  StatusOr<Tokens> Read(const Pass& pass, Microbatch microbatch);

 private:
  // Number of microbatches in the pass.
  uint32_t MicrobatchesOf(const Pass& pass) const;
  // `microbatch`: in training, its index in this replica's part of the step.
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

  std::optional<uint32_t> end_token_;  // set with data.mask: document
  std::vector<int32_t> inputs_, targets_, documents_;
  std::optional<Pass> pass_;  // the pass that is being read
  double counted_ = 0;
};

// Number of microbatches in a validation: the run file's samples in whole microbatches, at least
// one and at most what the validation text holds. 0 if validation is off.
uint32_t ValidationMicrobatches(const RunSpec& spec, uint64_t validation_tokens);
uint32_t ValidationMicrobatchesOf(const RunSpec& spec, uint64_t windows);

// Whether a validation follows the training of `step`: every `validation.every` steps and after the
// last step. Step 0 is before the first step: true if the run file says so or if there are no
// steps.
bool ValidatesAfter(const RunSpec& spec, Step step);
// Whether a clean validation follows the validation after `step`, with uncompressed boundaries.
// Only for links that compress activations.
bool ValidatesCleanAfter(const RunSpec& spec, Step step);

}  // namespace longhaul::worker
