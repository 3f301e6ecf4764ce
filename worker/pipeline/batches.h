// Chooses and reads the tokens of each microbatch. The choice depends only on the plan. So the
// first stage (inputs) and the last stage (targets) choose the same tokens without messages, and a
// resumed run continues exactly where it stopped.
//
// Threads: only one thread at a time may use a Batches or a SampleOrder. The functions are pure.
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

// Number of microbatches that all replicas together have read by the end of `step`. This number
// does not follow from `step`, because the number of replicas may have changed between attempts.
struct ReadSoFar {
  uint64_t step = 0, microbatches = 0;
};
// Returns what the run had read when the attempt of `assignment` began.
ReadSoFar ReadBefore(const Assignment& assignment, const RunSpec& spec);

// Maps the sequences of a microbatch to windows of the training text, in the same way on every
// stage. A window is the text of one sequence (worker/data/window_source.h). Copies share state:
// only one thread at a time may use an object or its copies.
struct SampleOrder {
  std::shared_ptr<data::SampleOrder> windows;
  uint32_t microbatches = 0, microbatch_size = 0;  // of one replica in a step; in sequences
  // The replica that reads, and the number of replicas. A step's windows go first to the
  // microbatches of replica 0, then to the microbatches of replica 1, and so on. A single replica
  // with as many microbatches in total would read the same windows.
  uint32_t replica = 0, replicas = 1;
  ReadSoFar before = {};  // what was read before the attempt began

  // Return the index of a microbatch, counted from 0 over the whole run. FirstOfAll: the first
  // microbatch of `step` over all replicas. FirstMicrobatchOf: this replica's first microbatch of
  // `step`. `step` must be later than before.step.
  uint64_t FirstOfAll(Step step) const {
    return before.microbatches + (step.value() - 1 - before.step) * replicas * microbatches;
  }
  uint64_t FirstMicrobatchOf(Step step) const {
    return FirstOfAll(step) + uint64_t{replica} * microbatches;
  }
  // Return the index of the window that a sequence reads. `row`: the sequence's index in its
  // microbatch. `microbatch`: the microbatch's index among this replica's microbatches of the step;
  // for WindowOfAll, among those of all replicas.
  uint64_t WindowOf(Step step, Microbatch microbatch, uint32_t row) const {
    return WindowOfAll(step, uint64_t{replica} * microbatches + microbatch.value(), row);
  }
  uint64_t WindowOfAll(Step step, uint64_t microbatch, uint32_t row) const {
    return windows->WindowOf((FirstOfAll(step) + microbatch) * microbatch_size + row);
  }
};
// Makes the order of a replica. `mixture`: the run's data sets, read only during the call; null:
// the text is a token file with `windows` windows. With a mixture, `windows` is ignored.
SampleOrder SampleOrderOf(const RunSpec& spec, const data::Mixture* mixture, uint64_t windows,
                          uint32_t replica, const ReadSoFar& before = {});

// Reads the tokens of one replica's microbatches.
class Batches {
 public:
  // `source`: the run's text, with at least one training window; not null. `mixture`: as for
  // SampleOrderOf.
  Batches(const RunSpec& spec, std::shared_ptr<WindowSource> source, const data::Mixture* mixture,
          uint32_t replica = 0, const ReadSoFar& before = {});

  // The tokens of one microbatch. Each span has microbatch_size x context numbers, row by row, and
  // is valid until the next call of Read.
  struct Tokens {
    std::span<const int32_t> inputs, targets;  // token ids; target -1: not counted in the loss
    // For each input token the number of its document, counted from 0 in each row. Empty unless the
    // run file has `data.mask: document`.
    std::span<const int32_t> documents;
    // The number of counted targets in an average microbatch of the pass; in training, the average
    // is over all replicas. With train.dpo, the number of pairs instead (Stage::Input). The loss is
    // divided by this number. 0: the run has neither loss masks nor `data.mask: document`, so all
    // targets count.
    double counted = 0;
  };
  // Reads a microbatch. `microbatch`: its index among this replica's microbatches of the pass.
  // Blocks while data is fetched. Errors: those of WindowSource::Read.
  StatusOr<Tokens> Read(const Pass& pass, Microbatch microbatch);

 private:
  // Number of microbatches in the pass.
  uint32_t MicrobatchesOf(const Pass& pass) const;
  // `microbatch`: its index in this replica's part of the pass.
  uint64_t WindowOf(const Pass& pass, uint64_t microbatch, uint64_t row) const;
  Status Count(const Pass& pass);
  void Expect(const Pass& pass);

  const RunSpec spec_;
  const std::shared_ptr<WindowSource> source_;
  const SampleOrder order_;
  const uint64_t validation_windows_;
  Status ReadRow(const Pass& pass, uint64_t window, std::span<int32_t> inputs,
                 std::span<int32_t> targets);
  // Returns true if a document of the row ends with token `i`. False without data.mask: document.
  bool EndsDocument(std::span<const int32_t> row, size_t i) const;
  void FindDocuments();
  // Returns what counts in one row: targets, or with train.dpo pairs.
  uint64_t CountIn(std::span<const int32_t> inputs, std::span<const int32_t> targets) const;

  std::optional<uint32_t> end_token_;  // set with data.mask: document
  std::vector<int32_t> inputs_, targets_, documents_;
  std::optional<Pass> pass_;  // the pass that is being read
  double counted_ = 0;
};

// Return the number of whole microbatches in a validation, at least 1. They hold the run file's
// `validation.samples` sequences, or fewer if the validation text is shorter. 0: validation is off
// or has no text. The length of the validation text is given in tokens or in windows.
uint32_t ValidationMicrobatches(const RunSpec& spec, uint64_t validation_tokens);
uint32_t ValidationMicrobatchesOf(const RunSpec& spec, uint64_t windows);

// Returns true if a validation follows the training of `step`: every `validation.every` steps and
// after the last step. Step 0 means before the first step; a validation comes then if the run file
// has `validation.at_start` or no steps. Always false if `validation.every` is 0.
bool ValidatesAfter(const RunSpec& spec, Step step);
// Returns true if a clean validation, with uncompressed boundaries, follows the validation after
// `step`. Call it only for a run whose links compress activations.
bool ValidatesCleanAfter(const RunSpec& spec, Step step);

}  // namespace longhaul::worker
