#include "coordinator/state/life/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "coordinator/state/ledger/sane.h"
#include "planner/replicas.h"

namespace longhaul::coordinator {

namespace {

// Steps that wait for some stages' reports. Where the coordinator was away, one stage tells all
// that it has kept before another is back; more means that reports were lost.
constexpr size_t kMaxPartialSteps = 8192;
constexpr uint64_t kMaxPartialBytes = 32 << 20;
constexpr size_t kRecentSteps = 32;
constexpr absl::Duration kStoreStepEvery = absl::Seconds(1);

// The mean over the layers of all stages. Nothing where a stage does not say it.
void AddExpertLoad(const Run& run, std::span<const std::optional<v1::StepReport>> reports,
                   v1::StepRecord* record) {
  v1::ExpertLoad load;
  double sum = 0;
  uint32_t layers = 0;
  for (const StageRecord& stage : run.stages) {
    const v1::StepReport& report = *reports[stage.place];
    if (!report.has_expert_load()) return;
    const uint32_t own = run.assignment().cells[stage.place].layers.count;
    sum += Sane(report.expert_load().mean()) * own;
    layers += own;
    const double highest = Sane(report.expert_load().highest());
    if (highest <= load.highest()) continue;
    load.set_highest(highest);
    load.set_layer(report.expert_load().layer());
  }
  if (layers == 0) return;
  load.set_mean(sum / layers);
  *record->mutable_expert_load() = std::move(load);
}

// Over the pairs of all replicas.
void AddPreferences(const Run& run, std::span<const std::optional<v1::StepReport>> reports,
                    v1::StepRecord* record) {
  double pairs = 0, preferred = 0, margins = 0;
  for (const StageRecord& stage : run.stages) {
    if (!stage.is_last || !reports[stage.place]->has_preferences()) continue;
    const v1::Preferences& of_replica = reports[stage.place]->preferences();
    pairs += Sane(of_replica.pairs());
    preferred += Sane(of_replica.preferred());
    margins += of_replica.margins();
  }
  if (!(pairs > 0)) return;
  record->set_preference_accuracy(preferred / pairs);
  record->set_preference_margin(margins / pairs);
}

void AddValidation(const v1::ValidationReport& report, v1::StepRecord* record) {
  record->set_has_validation(true);
  record->set_validation_loss(report.loss());
  if (report.has_clean_loss()) record->set_clean_validation_loss(report.clean_loss());
  if (const v1::Preferences& of = report.preferences(); of.pairs() > 0) {
    record->set_validation_preference_accuracy(of.preferred() / of.pairs());
    record->set_validation_preference_margin(of.margins() / of.pairs());
  }
}

std::string ValidationSentence(const v1::ValidationReport& report) {
  const auto text = [](double loss) {
    return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : fmt::format("{}", loss);
  };
  return fmt::format("validation loss at step {}: {}{}", report.step(), text(report.loss()),
                     report.has_clean_loss()
                         ? fmt::format(", with boundaries in fp32 {}", text(report.clean_loss()))
                         : std::string());
}

}  // namespace

bool Steps::OnStep(Run& run, StageRecord& stage, const Worker& worker,
                   const v1::WorkerMessage& message) {
  const v1::StepReport& report = message.step();
  const RunState state = run.record.state;
  if ((state != RunState::kRunning && state != RunState::kFinishing) ||
      report.step() > run.record.spec.train.steps) {
    ledger_.DropMessage(run, worker, message, "a step report of another step or time");
    return false;
  }
  if (!stage.HasStarted()) stage.MovePhase(StageTrigger::kSaidStarted);
  const bool skipped = report.skipped() && run.record.spec.train.on_nonfinite == OnNonfinite::kSkip;
  if (report.first_nonfinite() && !skipped) {
    failures_.NoteNonFiniteValue(run, report.step(), stage.id);
  }
  if (report.step() <= run.record.step) return true;  // known, or given up
  OfRun& of = of_[run];
  of.last.resize(run.stages.size());
  std::optional<v1::StepReport>& last = of.last[stage.place];
  if (!last || report.step() >= last->step()) last = report;
  Reports& reports = of.partial[report.step()];
  reports.resize(run.stages.size());
  if (reports[stage.place]) return true;
  reports[stage.place] = report;
  of.partial_bytes += report.ByteSizeLong();
  ledger_.Changed(run);

  const bool bad_loss = stage.is_last && report.has_loss() && !std::isfinite(report.loss());
  const bool bad_norm =
      stage.is_first && report.has_norm() && !std::isfinite(report.gradient_norm());
  if ((bad_loss || bad_norm) && !skipped) {
    failures_.NoteNonFinite(
        run, {report.step(),
              bad_loss ? fmt::format("the loss became {}", report.loss())
                       : fmt::format("the gradient norm became {}", report.gradient_norm()),
              ledger_.now() + kCausePatience});
  }
  const bool all = std::ranges::all_of(reports, [](const auto& one) { return one.has_value(); });
  if (all && failures_.nonfinite(run) && failures_.nonfinite(run)->step == report.step()) {
    failures_.Fail(run, "");
    return true;
  }
  if (all) {
    const Reports done = of.TakePartial(of.partial.find(report.step()));
    Finish(run, report.step(), done);
    while (!of.partial.empty() && of.partial.begin()->first <= report.step()) {
      of.TakePartial(of.partial.begin());
    }
  }
  // The farthest ahead go: whoever makes up steps of the future pushes out none that the run is at.
  while (of.partial.size() > kMaxPartialSteps || of.partial_bytes > kMaxPartialBytes) {
    of.TakePartial(std::prev(of.partial.end()));
  }
  return true;
}

Steps::Reports Steps::OfRun::TakePartial(std::map<uint64_t, Reports>::iterator step) {
  Reports reports = std::move(step->second);
  partial.erase(step);
  for (const std::optional<v1::StepReport>& report : reports) {
    if (report) partial_bytes -= report->ByteSizeLong();
  }
  return reports;
}

void Steps::Finish(Run& run, uint64_t step, const Reports& reports) {
  OfRun& of = of_[run];
  v1::StepRecord record;
  record.set_step(step);
  record.set_epoch(run.record.epoch.value());
  record.set_replicas(ReplicasOf(run.assignment()));
  record.set_first_microbatch(MicrobatchesAt(run, step - 1));
  double seconds = 0, loss = 0;
  uint32_t losses = 0;
  uint64_t link_bytes = 0, payload_bytes = 0;
  for (const StageRecord& stage : run.stages) {
    const std::optional<v1::StepReport>& report = reports[stage.place];
    // Others wait in their next step for the validation of the first replica.
    if (stage.id.replica == 0) seconds = std::max(seconds, Sane(report->seconds()));
    for (const v1::LinkUse& link : report->links()) {
      link_bytes += link.link_bytes_sent();
      payload_bytes += link.payload_bytes_sent();
    }
    if (stage.is_first && stage.id.replica == 0) {
      record.set_gradient_norm(report->gradient_norm());
      record.set_learning_rate(report->learning_rate());
    }
    if (stage.is_last) {
      loss += report->loss();
      ++losses;
    }
    record.add_squared_norms(report->squared_norm());
  }
  if (losses > 0) record.set_loss(loss / losses);  // replicas have as many targets
  record.set_seconds(seconds);
  record.set_link_bytes(link_bytes);
  record.set_payload_bytes(payload_bytes);
  AddExpertLoad(run, reports, &record);
  AddPreferences(run, reports, &record);
  if (const auto early = of.validation_early.find(step); early != of.validation_early.end()) {
    AddValidation(early->second, &record);
  }
  of.validation_early.erase(of.validation_early.begin(), of.validation_early.upper_bound(step));
  LogIfSkipped(run, step, reports);
  if (!File(run, &record, reports)) return;
  if (finished_) finished_(run, step, reports);
  run.record.step = step;
  // The whole record costs the store a sync of the disk: not for every step of a fast run.
  if (run.record.state == RunState::kFinishing ||
      ledger_.now() - run.stored_at >= kStoreStepEvery) {
    ledger_.Store(run);
  } else {
    ledger_.Changed(run);
  }
  ledger_.Write(write::StepDone{run.record.id, record});
  of.recent.push_back(std::move(record));
  if (of.recent.size() > kRecentSteps) of.recent.pop_front();
  if (run.record.state == RunState::kRunning) tuning_.Consider(run, reports);
}

void Steps::LogIfSkipped(const Run& run, uint64_t step, const Reports& reports) {
  bool skipped = false;
  std::string where;
  for (const StageRecord& stage : run.stages) {
    const v1::StepReport& report = *reports[stage.place];
    skipped = skipped || report.skipped();
    if (!report.first_nonfinite() || !where.empty()) continue;
    where = fmt::format("; such a value appeared in {}", ledger_.Label(stage));
  }
  if (!skipped) return;
  ledger_.Count(FaultKind::kStepNonFinite);
  ledger_.Log(&run, "loss",
              "step {} is skipped, all stages keep their parameters: its gradient norm is not "
              "finite{}",
              step, where);
}

void Steps::OnValidation(Run& run, const v1::ValidationReport& report) {
  OfRun& of = of_[run];
  if (of.validation && report.step() <= of.validation->step()) return;
  if (report.step() < run.record.step) return;  // told again, to a coordinator that was restarted
  if (report.step() > run.record.spec.train.steps) return;
  of.validation = report;
  ledger_.Changed(run);
  ledger_.Log(&run, "loss", ValidationSentence(report));
  for (v1::StepRecord& record : of.recent) {
    if (record.step() != report.step()) continue;
    AddValidation(report, &record);
    ledger_.Write(write::StepDone{run.record.id, record});  // in the place of the first
    return;
  }
  if (report.step() <= run.record.step) {
    // Before the first step, or of a step that another epoch has trained.
    const v1::StepRecord* known = of.book.Find(report.step());
    if (known == nullptr && report.step() > 0) return;
    v1::StepRecord record = known == nullptr ? v1::StepRecord() : *known;
    if (known == nullptr) record.set_epoch(run.record.epoch.value());
    AddValidation(report, &record);
    ledger_.Write(write::StepDone{run.record.id, std::move(record)});
    return;
  }
  of.validation_early[report.step()] = report;
  if (of.validation_early.size() > kMaxPartialSteps) {
    of.validation_early.erase(of.validation_early.begin());
  }
}

const v1::StepReport* Steps::LastOf(const Run& run, const StageRecord& stage) const {
  const Reports& last = of_.Of(run).last;
  return stage.place < last.size() && last[stage.place] ? &*last[stage.place] : nullptr;
}

void Steps::OnMove(Run& run, const Transition& row) {
  if (row.trigger == Trigger::kResumed) return of_.Forget(run.record.id);
  OfRun& of = of_[run];
  if (HasEnded(row.to)) {
    of.book = StepBook();
    of.partial.clear();
    of.partial_bytes = 0;
  }
  if (!EndsEpoch(row)) return;
  // Steps that the epoch had finished may be finished again.
  StepBook book = std::move(of.book);
  of = OfRun();
  of.book = std::move(book);
}

}  // namespace longhaul::coordinator
