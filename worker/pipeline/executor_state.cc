// Checkpoints and interim copies at the end of a step.
#include <utility>

#include "worker/pipeline/checkpoint_writer.h"
#include "worker/pipeline/executor.h"
#include "worker/pipeline/tied_exchange.h"

namespace longhaul::worker {

bool Executor::WritesCheckpoint() const {
  const CheckpointSpec& checkpoint = options_.spec.checkpoint;
  return StopsNow() || (checkpoint.at_end && step_.value() == options_.spec.train.steps) ||
         (checkpoint.every > 0 && step_.value() % checkpoint.every == 0);
}

bool Executor::SavesState() const {
  const uint64_t copies = options_.copy_every;
  return WritesCheckpoint() || (copies > 0 && step_.value() % copies == 0);
}

void Executor::KeepTablesOfStep() {
  if (tables_kept_ == step_ || !SavesState()) return;
  tables_kept_ = step_;
  down_->KeepTables();
}

Status Executor::SaveState() {
  if (!SavesState()) return absl::OkStatus();
  const bool wanted = WritesCheckpoint();
  // No checkpoint follows this one, so the executor must not skip it if it cannot be written.
  if (wanted && (StopsNow() || step_.value() == options_.spec.train.steps)) {
    last_checkpoint_ = step_.value();
  }
  SharedSnapshot snapshot;
  {
    const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
    // Waits for room first: three snapshots at once may not fit in memory.
    {
      const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kDisk);
      checkpoint_writer_->AwaitRoom();
    }
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kSnapshot);
    std::vector<NamedArray> tables;
    if (down_ != nullptr) {
      LH_ASSIGN_OR_RETURN(tables, down_->SaveTables());
    }
    std::function<Status(StageSnapshot*)> add;
    if (options_.exchange) {
      add = [this](StageSnapshot* taken) { return options_.exchange->AddState(taken); };
    }
    LH_ASSIGN_OR_RETURN(snapshot, resident_.TakeSnapshot(std::move(tables), add));
  }
  if (tied_) LH_RETURN_IF_ERROR(CheckTied(*snapshot));
  CheckpointWriter::Job job{.snapshot = std::move(snapshot), .interim = !wanted};
  if (options_.recorder) job.inputs = options_.recorder->Cut(step_);
  checkpoint_writer_->Submit(std::move(job));
  return absl::OkStatus();
}

Status Executor::CheckTied(const StageSnapshot& snapshot) {
  {
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kTied);
    tied_->BeginCheck(snapshot);
  }
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool checked, tied_->IsChecked());
    if (checked) return absl::OkStatus();
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT, WorkAtHand::Wait::kTied));
  }
}

}  // namespace longhaul::worker
