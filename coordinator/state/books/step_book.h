// The newest steps that a run has finished, and a comparison with steps that the run trained again
// after an interruption. A step that is trained again from the same start, on the same devices,
// must give the same numbers bit for bit. An epoch is one attempt to train the run (base/ids.h).
//
// A hash chain shows whether equal numbers are promised. The `numerics` of a step are a hash of the
// previous step's numerics and of the digests (v1::StepReport.numerics) that this step's stages
// reported. If two trainings of a step have equal `numerics`, everything that decides their bits
// was equal since the first step. Numerics 0 promise nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// How many steps of a run are kept.
inline constexpr size_t kKeptSteps = 8192;

// The comparison of a step with its record of an older epoch, which had finished the step before.
struct RepeatedStep {
  v1::StepRecord before;  // the older record
  bool promised = false;  // equal numbers are promised
  // Compared bit for bit.
  bool same_loss = true, same_norm = true;
  // Indices of the parts of the gradient, one of each stage of each replica, whose squared norms
  // differ. Empty if the step was split into another number of parts.
  std::vector<size_t> other_parts;

  bool same() const { return same_loss && same_norm && other_parts.empty(); }
};

// All steps that one epoch has trained again: steps `first` to `last`.
struct RepeatedSteps {
  uint64_t epoch = 0, first = 0, last = 0;
  bool same = true;      // all steps gave the same numbers
  bool in_order = true;  // all stages summed in a fixed order, in every step
  // The largest absolute differences, and the first step with a difference; 0 if `same`.
  double loss_difference = 0, norm_difference = 0;
  uint64_t differs_at = 0;
};

class StepBook {
 public:
  // Loads the steps of a stored run.
  void Load(std::span<const v1::StepRecord> rows);

  // Adds `row`, a step that its epoch has finished, and sets its numerics. `of_stages`: the digest
  // of each stage. Returns the comparison if another epoch had finished this step before; else
  // nullopt.
  std::optional<RepeatedStep> File(v1::StepRecord* row, std::span<const uint64_t> of_stages);

  // Returns a value once, when the newest step that an older epoch had finished is repeated; else
  // nullopt.
  std::optional<RepeatedSteps> TakeRepeated();

  // Null: the step is not known. Valid until the next call of a function that is not const.
  const v1::StepRecord* Find(uint64_t step) const;

  // Drops the steps after `step`, which are not to be compared with: a worker has erred.
  void ForgetAfter(uint64_t step) { rows_.erase(rows_.upper_bound(step), rows_.end()); }
  // Drops the steps before `step`. No later epoch may begin before this step.
  void ForgetBefore(uint64_t step);

 private:
  uint64_t NumericsOf(const v1::StepRecord& row, std::span<const uint64_t> of_stages) const;
  void Count(const RepeatedStep& repeated, const v1::StepRecord& row);

  // Rows after the present step belong to older epochs.
  std::map<uint64_t, v1::StepRecord> rows_;
  std::optional<RepeatedSteps> repeated_;  // by the newest epoch
};

}  // namespace longhaul::coordinator
