#include "planner/copy_interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "planner/memory.h"

namespace longhaul::coordinator {
namespace {

// The share of a step's time that copies may cost.
constexpr double kBudget = 0.02;
// tests/multiprocess/faults/copy_cost.py measures the next three (docs/results/recovery.md).
// Copies can use this share of what training leaves of a line: some gaps between tensors are too
// short for a piece, and who takes pieces asks for them a round trip before.
constexpr double kUsableShare = 0.6;
// Coding leaves this share of a copy's bytes (worker/checkpoint/shard_coding.h).
constexpr double kCodedShare = 0.86;
// A step takes this much longer while copies are on their way, because tensors wait for pieces.
constexpr double kSlowdown = 0.04;
// To take a snapshot, hash it and write it, on a core that training uses too.
constexpr double kSnapshotBytesPerSecond = 400e6;
// Assumed for lines whose rate is not known.
constexpr double kAssumedBitsPerSecond = 100e6;
constexpr uint64_t kMostSteps = 1'000'000;

}  // namespace

uint64_t StateBytes(const RunSpec& spec, uint32_t vocabulary, const Cell& cell) {
  return StageStateBytes(spec, vocabulary, cell.layers.count, cell.roles.embedding,
                         cell.roles.head);
}

std::string LostDiskWarning(const RunSpec& spec, uint64_t copy_every) {
  if (spec.replay || copy_every > 0 || spec.checkpoint.keep_copy || !spec.checkpoint.to.empty()) {
    return "";
  }
  return "a lost disk loses this run: every stage's state is on its own worker's disk alone; say "
         "recovery.every: auto, checkpoint.keep_copy: true, or a folder of an object store in "
         "checkpoint.to";
}

CopyInterval CopyIntervalOf(const RunSpec& spec, const Plan& plan) {
  const double step_seconds = plan.prediction.step_seconds;
  const auto at_risk = [&](uint64_t steps) {
    return FormatSeconds(step_seconds * static_cast<double>(steps));
  };
  if (spec.recovery.every) {
    const uint64_t steps = *spec.recovery.every;
    if (steps == 0) return {};
    return {steps, fmt::format("every {} steps ({} of work at risk), as the run file says", steps,
                               at_risk(steps))};
  }
  double longest = 0, all_at_spare = 0, snapshot = 0;
  std::string why;
  const Assignment& assignment = plan.assignment;
  for (size_t place = 0; place < assignment.cells.size(); ++place) {
    const Cell& cell = assignment.cells[place];
    const auto bytes = static_cast<double>(StateBytes(spec, assignment.data.vocabulary, cell));
    const double known = place < plan.cells.size() ? plan.cells[place].egress_bits_per_second : 0;
    const double rate = known > 0 ? known : kAssumedBitsPerSecond;
    const double used =
        place < plan.prediction.cells.size() ? plan.prediction.cells[place].egress_share : 0;
    const double left = std::max(kBudget, (1 - used) * kUsableShare);
    const double seconds = 8 * bytes * kCodedShare / (rate * left);
    snapshot = std::max(snapshot, bytes / kSnapshotBytesPerSecond);
    all_at_spare += 8 * bytes * kCodedShare / (rate * kUsableShare);
    if (seconds <= longest) continue;
    longest = seconds;
    why = fmt::format("{} of stage {} take {} of the {:.0f}% that training leaves of its line",
                      FormatBytes(bytes), cell.id.stage, FormatSeconds(seconds), 100 * (1 - used));
  }
  if (spec.recovery.spares > 0 && all_at_spare > longest) {
    longest = all_at_spare;
    why = fmt::format("the line of one spare takes all stages' in {}", FormatSeconds(all_at_spare));
  }
  double seconds = longest * kSlowdown / kBudget;
  why += fmt::format(", and copies go {:.0f}% of the time", 100 * kBudget / kSlowdown);
  if (snapshot / kBudget > seconds) {
    seconds = snapshot / kBudget;
    why = fmt::format("to snapshot a stage takes {}", FormatSeconds(snapshot));
  }
  if (!(step_seconds > 0)) return {kMostSteps, "nothing is known of a step"};
  const double steps = std::ceil(seconds / step_seconds);
  CopyInterval interval;
  interval.steps = static_cast<uint64_t>(std::clamp(steps, 1.0, static_cast<double>(kMostSteps)));
  interval.reason = fmt::format("every {} steps ({} of work at risk): {}", interval.steps,
                                at_risk(interval.steps), why);
  return interval;
}

}  // namespace longhaul::coordinator
