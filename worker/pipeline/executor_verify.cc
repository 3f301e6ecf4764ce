// What a stage says of itself and of its neighbours so that the coordinator can verify a run.
#include <utility>

#include "worker/pipeline/executor.h"

namespace longhaul::worker {

Status Executor::NoteState() {
  state_after_.reset();
  if (!options_.digests || !options_.spec.verify.DigestsStateOf(step_.value())) {
    return absl::OkStatus();
  }
  const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
  const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kOptimizer);
  LH_ASSIGN_OR_RETURN(state_after_, resident_.model().StateDigest());
  return absl::OkStatus();
}

Status Executor::CheckState() {
  state_before_.reset();
  if (!state_after_) return absl::OkStatus();
  {
    const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kOptimizer);
    LH_ASSIGN_OR_RETURN(state_before_, resident_.model().StateDigest());
  }
  if (*state_before_ == *state_after_) return absl::OkStatus();
  const bool waits = options_.spec.verify.differs != Contradicted::kWarn;
  v1::Finding finding;
  finding.set_kind(v1::Finding::STATE_CHANGED);
  finding.set_waits(waits);
  ReportFinding(std::move(finding));
  if (!waits) return absl::OkStatus();
  awaits_verdict_ = true;
  static_cast<void>(AwaitVerdict());
  // The model must not be used again, even where the epoch ends in good order.
  return DataLoss("parameters or optimizer state changed between the updates of steps {} and {}",
                  step_.value() - 1, step_.value());
}

void Executor::ReportFinding(v1::Finding finding) {
  finding.set_step(step_.value());
  v1::WorkerMessage message;
  *message.mutable_finding() = std::move(finding);
  options_.report(std::move(message));
}

void Executor::AddDigests(v1::StepReport* report) {
  if (options_.digests) {
    std::vector<v1::EdgeDigests> edges;
    for (const auto& port : options_.ports) {
      for (v1::EdgeDigests& one : port->TakeDigests(step_)) edges.push_back(std::move(one));
    }
    *report->mutable_digests() =
        options_.digests->Sign(step_, edges, std::exchange(state_before_, {}), state_after_);
  }
  if (options_.rehearsal) options_.rehearsal->OnReport(report);
}

Status Executor::Handle(TensorDoubted& doubted) {
  const std::tuple key(doubted.pass.step.value(), doubted.edge, doubted.direction);
  if (options_.accepted_outliers.contains(key) || !doubted_.insert(key).second) {
    return absl::OkStatus();
  }
  v1::Finding finding;
  finding.set_kind(v1::Finding::OUTLIER);
  finding.set_edge(doubted.edge.value());
  finding.set_forward(doubted.direction == Direction::kForward);
  finding.set_microbatch(doubted.slice.microbatch.value());
  finding.set_what(doubted.what);
  finding.set_waits(options_.spec.verify.outliers != Implausible::kWarn);
  awaits_verdict_ |= finding.waits();
  v1::WorkerMessage message;
  finding.set_step(doubted.pass.step.value());
  *message.mutable_finding() = std::move(finding);
  options_.report(std::move(message));
  return absl::OkStatus();
}

Status Executor::AwaitVerdict() {
  while (awaits_verdict_) {
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_INPUT, WorkAtHand::Wait::kVerdict));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
