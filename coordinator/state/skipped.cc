// A checkpoint that a stage cannot write, such as on a full disk, is skipped: training goes on, and
// the older ones stay as they are.
#include <fmt/format.h>

#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

// More than that are not told apart from steps that nobody has written yet.
constexpr size_t kMaxSkipped = 64;

}  // namespace

bool Core::SkipCheckpoint(Run& run, const StageRecord& stage, const v1::ShardReport& report) {
  const uint64_t step = report.step();
  v1::WorkerCommand drop = CommandFor(run.record.id, run.record.epoch);
  drop.mutable_drop_checkpoint()->set_step(step);
  const bool known = run.skipped_checkpoints.contains(step);
  if (report.problem().empty()) {
    // The other stages have no use for theirs.
    const Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation);
    if (known && worker != nullptr) Send(*worker, std::move(drop));
    return known;
  }
  if (known) return true;
  run.skipped_checkpoints.insert(step);
  if (run.skipped_checkpoints.size() > kMaxSkipped) {
    run.skipped_checkpoints.erase(run.skipped_checkpoints.begin());
  }
  run.partial_checkpoints.erase(step);
  faults_.Add(FaultKind::kCheckpointSkipped);
  Log(&run, "checkpoint",
      fmt::format("the checkpoint of step {} is skipped, training goes on: {}: {}", step,
                  Label(stage), Quoted(report.problem())));
  for (const StageRecord& one : run.stages) {
    const Worker* worker = LiveWorkerOf(one.worker, one.incarnation);
    if (worker != nullptr) Send(*worker, drop);
  }
  return true;
}

}  // namespace longhaul::coordinator
