#include "coordinator/state/verify/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

// A stage may lag behind others by so many steps, and for so long while it is connected.
constexpr uint64_t kMostAhead = 64;
constexpr absl::Duration kLatePatience = absl::Seconds(60);
// Edges that differ for which a run's workers write their messages to disk.
constexpr uint32_t kMostEvidence = 16;
// Where a run trains on, of each subject one event in so many steps.
constexpr uint64_t kTellAgainAfter = 100;

std::string_view WhatGoes(bool forward) {
  return forward ? "activation" : "gradient";
}

}  // namespace

void Verification::Tell(Run& run, const Subject& about, uint64_t step,
                        const std::string& sentence) {
  ledger_.Count(FaultKind::kContradiction);
  const auto [told, is_new] = of_[run].told.try_emplace(about, step);
  if (!is_new && step > told->second && step < told->second + kTellAgainAfter) return;
  told->second = step;
  ledger_.Log(&run, "verify", sentence);
}

void Verification::OnStep(Run& run, const StageRecord& stage, const v1::StepReport& report,
                          Signature signature) {
  const VerifySpec& verify = run.record.spec.verify;
  if (verify.digests == DigestKind::kNone || run.record.spec.replay) return;
  const std::vector<Contradiction> found =
      of_[run].book.Take(run.assignment(), verify, stage.id, report, signature);
  const Epoch epoch = run.record.epoch;
  const auto goes_on = [&] { return HasStages(run.record.state) && run.record.epoch == epoch; };
  for (const Contradiction& one : found) {
    if (one.names_cell()) {
      Judge(run, one);
    } else {
      of_[run].differ[one.step].push_back(one);
    }
    // The first may end the epoch, and with it the meaning of the others.
    if (!goes_on()) return;
  }
  JudgeWholeSteps(run);
  if (goes_on()) CheckLate(run, report.step());
}

void Verification::OnFinding(Run& run, const StageRecord& stage, const v1::Finding& finding) {
  if (finding.kind() == v1::Finding::STATE_CHANGED) {
    JudgeState(run, stage, finding.step());
  } else if (finding.kind() == v1::Finding::OUTLIER) {
    JudgeOutlier(run, stage, finding);
  }
}

void Verification::Judge(Run& run, const Contradiction& found) {
  const StageRecord& stage = *run.Find(found.cell);
  if (found.kind == Contradiction::Kind::kStateDiffers) return JudgeState(run, stage, found.step);
  const std::string sentence = Sentence(run, found);
  Tell(run, {found.kind, found.cell.stage, found.cell.replica}, found.step, sentence);
  // No worker leaves out or spoils its digests by accident, so to repeat a step helps nothing.
  if (run.record.spec.verify.differs == Contradicted::kEvict) {
    verdicts_.Evict(run, {stage.worker}, found.step - 1, sentence);
  }
}

void Verification::JudgeWholeSteps(Run& run) {
  OfRun& of = of_[run];
  if (of.differ.empty()) return;
  uint64_t whole = UINT64_MAX;
  for (const StageRecord& stage : run.stages) {
    whole = std::min(whole, of.book.LastOf(stage.id).value_or(0));
  }
  const auto [step, edges] = *of.differ.begin();
  if (step > whole) return;
  of.differ.erase(of.differ.begin());
  JudgeEdges(run, step, edges);
}

void Verification::JudgeEdges(Run& run, uint64_t step, const std::vector<Contradiction>& found) {
  OfRun& of = of_[run];
  for (const Contradiction& one : found) {
    Tell(run, {one.kind, one.edge.value(), one.direction == Direction::kForward}, step,
         Sentence(run, one));
    if (of.evidence++ < kMostEvidence) {
      AskForEvidence(run, one.cell, step, one.edge);
      AskForEvidence(run, one.receiver, step, one.edge);
    }
    const WorkerId &from = run.Find(one.cell)->worker, &to = run.Find(one.receiver)->worker;
    of.accusers[from].insert(to);
    of.accusers[to].insert(from);
  }
  const Contradicted differs = run.record.spec.verify.differs;
  if (differs == Contradicted::kWarn) return;
  std::string cause = Sentence(run, found.front());
  if (found.size() > 1) cause += fmt::format("; so do {} other edges", found.size() - 1);
  std::set<WorkerId> guilty;
  bool again = false;
  for (const Contradiction& one : found) {
    const WorkerId &from = run.Find(one.cell)->worker, &to = run.Find(one.receiver)->worker;
    const size_t against_from = of.accusers[from].size(), against_to = of.accusers[to].size();
    if (against_from != against_to) guilty.insert(against_from > against_to ? from : to);
    again |= !of.repeated.insert(std::minmax(from, to)).second;
  }
  if (differs == Contradicted::kEvict && !guilty.empty()) {
    cause += "; more than one other contradicts it";
  } else if (differs == Contradicted::kEvict && again) {
    for (const Contradiction& one : found) {
      guilty.insert({run.Find(one.cell)->worker, run.Find(one.receiver)->worker});
    }
    cause += ", for the second time; one of the two errs, and nothing tells which";
  } else {
    guilty.clear();
  }
  if (guilty.empty()) {
    verdicts_.Repeat(run, step - 1, cause);
  } else {
    verdicts_.Evict(run, {guilty.begin(), guilty.end()}, step - 1, cause);
  }
}

void Verification::JudgeState(Run& run, const StageRecord& stage, uint64_t step) {
  const std::string sentence = fmt::format(
      "parameters or optimizer state of {} changed between the updates of steps {} and "
      "{}; its memory or device may be broken",
      ledger_.Label(stage), step - 1, step);
  Tell(run, {Contradiction::Kind::kStateDiffers, stage.id.stage, stage.id.replica}, step, sentence);
  const Contradicted differs = run.record.spec.verify.differs;
  if (differs == Contradicted::kWarn || step == 0) return;
  if (differs == Contradicted::kEvict) {
    verdicts_.Evict(run, {stage.worker}, step - 1, sentence);
  } else {
    verdicts_.Repeat(run, step - 1, sentence);
  }
}

void Verification::JudgeOutlier(Run& run, const StageRecord& stage, const v1::Finding& finding) {
  const Implausible outliers = run.record.spec.verify.outliers;
  const Edge* const edge = run.assignment().Find(EdgeId(finding.edge()));
  const bool forward = finding.forward();
  if (outliers == Implausible::kOff || edge == nullptr || finding.step() == 0 ||
      (forward ? edge->to : edge->from) != stage.id) {
    return;  // not of an edge at which this stage receives
  }
  const StageRecord& sender = *run.Find(edge->PeerOf(stage.id));
  std::string sentence =
      fmt::format("{} got an implausible {} of microbatch {} in step {} from {}: {}",
                  ledger_.Label(stage), WhatGoes(forward), finding.microbatch(), finding.step(),
                  ledger_.Label(sender), Quoted(finding.what()));
  Tell(run, {std::nullopt, finding.edge(), forward}, finding.step(), sentence);
  if (outliers == Implausible::kWarn) return;
  const bool again = !of_[run].outliers.emplace(finding.step(), finding.edge(), forward).second;
  if (again && outliers == Implausible::kEvict) {
    return verdicts_.Evict(run, {sender.worker}, finding.step() - 1,
                           sentence + ", also when the step was repeated");
  }
  if (again) {
    v1::AcceptedOutlier& accepted = run.accepted_outliers.emplace_back();
    accepted.set_step(finding.step());
    accepted.set_edge(finding.edge());
    accepted.set_forward(forward);
    sentence += ", also when the step was repeated, so it passes from now on";
  }
  verdicts_.Repeat(run, finding.step() - 1, sentence);
}

bool Verification::CheckLate(Run& run, uint64_t step) {
  OfRun& of = of_[run];
  for (const StageRecord& stage : run.stages) {
    const uint64_t last = of.book.LastOf(stage.id).value_or(run.assignment().start_step);
    if (!stage.IsAttached() || last + kMostAhead >= step) {
      of.lags_since.erase(stage.id);
      continue;
    }
    const MonoTime since = of.lags_since.try_emplace(stage.id, ledger_.now()).first->second;
    if (ledger_.now() - since < kLatePatience) continue;
    of.lags_since.erase(stage.id);
    Judge(run, {.kind = Contradiction::Kind::kWithheld,
                .step = last + 1,
                .cell = stage.id,
                .what = fmt::format("it has reported nothing since step {}, and others have "
                                    "reported step {}",
                                    last, step)});
    return true;
  }
  return false;
}

std::string Verification::EdgeText(const Run& run, const CellId& from, const CellId& to,
                                   EdgeId edge) const {
  return fmt::format("edge {}, from {} to {},", edge.value(), ledger_.Label(*run.Find(from)),
                     ledger_.Label(*run.Find(to)));
}

std::string Verification::Sentence(const Run& run, const Contradiction& found) const {
  using Kind = Contradiction::Kind;
  const std::string cell = ledger_.Label(*run.Find(found.cell));
  switch (found.kind) {
    case Kind::kWithheld:
      return fmt::format("{} withholds digests of step {}: {}", cell, found.step, found.what);
    case Kind::kUnsigned:
      return fmt::format("{} has not signed its digests of step {} with its key", cell, found.step);
    case Kind::kMalformed:
      return fmt::format("{} has sent false digests of step {}: {}", cell, found.step, found.what);
    case Kind::kEdgeDiffers:
    case Kind::kStateDiffers:
      break;
  }
  const bool forward = found.direction == Direction::kForward;
  const std::string_view what = WhatGoes(forward);
  // The last message over an edge of activations is the norm on its way up, or the decision down.
  const bool has_word = run.assignment().Find(found.edge)->kind == EdgeKind::kActivations;
  const uint32_t tensors = found.messages - (has_word && found.messages > 0 ? 1 : 0);
  std::string which = fmt::format("{} {} of {}", what, found.first, tensors);
  if (found.first >= found.messages) {
    which = fmt::format("message {}, which only one end has", found.first);
  } else if (found.first == tensors) {
    which = forward ? "the decision about the step" : "the gradient norm";
  } else if (found.last > found.first) {
    which = fmt::format("one of {}s {} to {} of {}", what, found.first, found.last, tensors);
  }
  return fmt::format("{} disagrees about step {}: the ends have other digests of {}",
                     EdgeText(run, found.cell, found.receiver, found.edge), found.step, which);
}

void Verification::AskForEvidence(const Run& run, const CellId& cell, uint64_t step, EdgeId edge) {
  const StageRecord& stage = *run.Find(cell);
  const Worker* const worker = ledger_.LiveWorkerOf(stage.worker, stage.incarnation);
  if (worker == nullptr) return;
  v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
  command.mutable_keep_evidence()->set_step(step);
  command.mutable_keep_evidence()->set_edge(edge.value());
  ledger_.Send(*worker, std::move(command));
}

void Verification::OnMove(Run& run, const Transition& row) {
  if (row.trigger == Trigger::kResumed || HasEnded(row.to)) return of_.Forget(run.record.id);
  if (!EndsEpoch(row)) return;
  OfRun& of = of_[run];
  of.book = DigestBook();
  of.differ.clear();
  of.lags_since.clear();
}

}  // namespace longhaul::coordinator
