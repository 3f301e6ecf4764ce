#include "coordinator/state/verify/audits.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/text.h"
#include "coordinator/state/workers/secrets.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// Reports that are kept between two checkpoints. With more the steps are not audited.
constexpr size_t kMostKeptBytes = size_t{64} << 20;
// Audits that wait for a spare. Their states stay on the disks of workers.
constexpr size_t kMostWaiting = 8;
// So many drawn audits in a row without a recording are a refusal.
constexpr uint32_t kMostWithheld = 3;
constexpr absl::Duration kAuditSlack = absl::Minutes(5);
// A spare that computes may be so many times slower than the plan's steps.
constexpr double kAuditSlowness = 20;

const v1::CheckpointFile* RecordingOf(const v1::CheckpointManifest& manifest, uint32_t stage) {
  for (const v1::CheckpointFile& file : manifest.recordings()) {
    if (file.stage() == stage) return &file;
  }
  return nullptr;
}

std::string StepsText(uint64_t from, uint64_t end) {
  return from + 1 == end ? fmt::format("step {}", end)
                         : fmt::format("steps {} to {}", from + 1, end);
}

}  // namespace

Audits::Audits(Ledger& ledger, const Spares& spares, Steps& steps, Shards& shards, Copies& copies,
               Commits& commits, Verdicts& verdicts)
    : ledger_(ledger),
      spares_(spares),
      shards_(shards),
      copies_(copies),
      verdicts_(verdicts),
      next_id_(ledger.FirstNumber("first audit")) {
  steps.WhenFinished(
      [this](const Run& run, uint64_t step, auto reports) { OnStep(run, step, reports); });
  commits.WhenCommitted([this](Run& run, uint64_t before, uint64_t step, auto reports) {
    OnCommit(run, before, step, reports);
  });
  shards_.WhenDone(ShardCheck::Purpose::kAudit,
                   [this](Run& run, const ShardCheck& /*check*/, const std::string& failure) {
                     AfterMove(run, failure);
                   });
}

void Audits::OnStep(const Run& run, uint64_t /*step*/,
                    std::span<const std::optional<v1::StepReport>> reports) {
  if (run.record.spec.audit.share <= 0) return;
  std::vector<v1::StepReport> kept;
  for (const std::optional<v1::StepReport>& report : reports) kept.push_back(*report);
  OfRun& of = of_[run];
  for (const v1::StepReport& report : kept) of.kept_bytes += report.ByteSizeLong();
  of.kept.push_back(std::move(kept));
  while (of.kept_bytes > kMostKeptBytes) of.DropOldest();
}

void Audits::OfRun::DropOldest() {
  for (const v1::StepReport& report : kept.front()) kept_bytes -= report.ByteSizeLong();
  kept.pop_front();
}

bool Audits::IsDrawn(const Run& run, const CellId& cell, uint64_t end) const {
  const std::string hash = HmacSha256(run.record.link_secret,
                                      fmt::format("audit\n{}\n{}\n{}\n{}", run.record.epoch.value(),
                                                  cell.replica, cell.stage, end));
  uint64_t number = 0;
  std::memcpy(&number, hash.data(), sizeof number);
  return std::ldexp(static_cast<double>(number), -64) < run.record.spec.audit.share;
}

void Audits::OnCommit(Run& run, uint64_t before, uint64_t step,
                      std::span<const std::optional<v1::ShardReport>> reports) {
  if (run.record.spec.audit.share <= 0 || run.record.spec.replay) return;
  OfRun& of = of_[run];
  while (!of.kept.empty() && of.kept.front().front().step() <= before) of.DropOldest();
  std::deque<std::vector<v1::StepReport>> window;
  while (!of.kept.empty() && of.kept.front().front().step() <= step) {
    window.push_back(of.kept.front());
    of.DropOldest();
  }
  // Some were lost on the way, or there was no room for them.
  if (window.size() != step - before) return;
  for (const StageRecord& stage : run.stages) {
    if (!IsDrawn(run, stage.id, step)) continue;
    const v1::ShardReport& report = *reports[stage.place];
    if (!report.has_recording() || report.recorded_from() != before) {
      NoteWithheld(run, stage.worker, ledger_.Label(stage), before, step,
                   "it has reported no recording of what it received");
      if (!HasStages(run.record.state)) return;  // the epoch has ended
      continue;
    }
    if (of.audits.size() >= kMostWaiting) {
      if (!std::exchange(of.told_of_lag, true)) {
        ledger_.Log(&run, "verify",
                    "spares compute audits more slowly than the run draws them: some are left out; "
                    "raise recovery.spares or lower audit.share");
      }
      continue;
    }
    Audit audit{.id = next_id_++,
                .cell = stage.id,
                .accused = stage.worker,
                .label = ledger_.Label(stage),
                .from = before,
                .end = step};
    for (const auto& one : window) audit.said.steps.push_back(one[stage.place]);
    audit.said.files.assign(report.files().begin(), report.files().end());
    of.audits.push_back(std::move(audit));
  }
  NotePinned(run);
}

void Audits::NoteWithheld(Run& run, const WorkerId& worker, const std::string& label, uint64_t from,
                          uint64_t end, const std::string& why) {
  uint32_t& withheld = of_[run].withheld[worker];
  ++withheld;
  const std::string sentence =
      fmt::format("{} of {} cannot be audited: {}", StepsText(from, end), label, why);
  if (withheld < kMostWithheld) {
    ledger_.Log(&run, "verify", sentence);
    return;
  }
  withheld = 0;
  verdicts_.Evict(run, {worker}, from,
                  fmt::format("{}, for the {}rd time in a row", sentence, kMostWithheld));
}

void Audits::NotePinned(Run& run) {
  run.audited.clear();
  for (const Audit& audit : of_[run].audits) {
    run.audited.insert(audit.from);
    run.audited.insert(audit.end);
  }
}

void Audits::Advance() {
  for (Run* run : ledger_.Active()) {
    if (!HasStages(run->record.state)) continue;
    std::vector<uint64_t> ids;
    for (const Audit& audit : of_[*run].audits) ids.push_back(audit.id);
    for (const uint64_t id : ids) {
      // One audit may end another one, together with the epoch.
      if (Audit* const audit = Find(*run, id)) Advance(*run, *audit);
    }
  }
}

void Audits::Advance(Run& run, Audit& audit) {
  if (audit.auditor) {
    const Worker* auditor = ledger_.FindWorker(*audit.auditor);
    if (auditor == nullptr || !spares_.IsSpareOf(*auditor, run) || !auditor->session) {
      audit.auditor.reset();
    }
  }
  if (!audit.auditor) return Begin(run, audit);
  if (audit.computes) {
    if (ledger_.now() < audit.until) return;
    ledger_.Log(&run, "verify", "the audit of {} of {} has no answer of worker {}",
                StepsText(audit.from, audit.end), audit.label,
                ledger_.Label(*ledger_.FindWorker(*audit.auditor)));
    TryAnother(run, audit);
    return;
  }
  if (shards_.book().IsAuditing(run.record.id)) return;
  if (audit.failure.empty()) {
    SendAudit(run, audit);
  } else {
    JudgeMissing(run, audit);
  }
}

Audits::Audit* Audits::Find(const Run& run, uint64_t id) {
  std::deque<Audit>& audits = of_[run].audits;
  const auto found = std::ranges::find(audits, id, &Audit::id);
  return found == audits.end() ? nullptr : &*found;
}

Audits::Audit* Audits::Moving(const Run& run) {
  std::deque<Audit>& audits = of_[run].audits;
  const auto found =
      std::ranges::find_if(audits, [](const Audit& one) { return one.auditor && !one.computes; });
  return found == audits.end() ? nullptr : &*found;
}

Worker* Audits::NextAuditor(const Run& run, const Audit& audit, bool* later) {
  *later = false;
  const std::deque<Audit>& audits = of_[run].audits;
  for (Worker* spare : spares_.SparesOf(run)) {
    if (audit.tried.contains(spare->id) || spare->restarts || spare->leaves_at ||
        spare->id == audit.accused) {
      continue;
    }
    const bool is_busy =
        std::ranges::any_of(audits, [&](const Audit& one) { return one.auditor == spare->id; });
    if (!is_busy) return spare;
    *later = true;
  }
  return nullptr;
}

void Audits::Begin(Run& run, Audit& audit) {
  if (Moving(run) != nullptr) return;  // files of one audit at a time
  bool later = false;
  const Worker* spare = NextAuditor(run, audit, &later);
  if (spare == nullptr) {
    if (later) return;
    if (audit.accuser) {
      Evict(run, audit, audit.accused, audit.difference);
    } else if (!audit.tried.empty()) {
      End(run, audit);  // else a spare may come
    }
    return;
  }
  audit.tried.insert(spare->id);
  audit.auditor = spare->id;
  audit.computes = false;
  audit.by_way = false;
  BeginMoves(run, audit);
}

void Audits::BeginMoves(Run& run, Audit& audit) {
  audit.failure.clear();
  const v1::CheckpointManifest* first = FindCheckpoint(run.record, audit.from);
  const v1::CheckpointManifest* second = FindCheckpoint(run.record, audit.end);
  const v1::CheckpointFile* recording =
      second == nullptr ? nullptr : RecordingOf(*second, audit.cell.stage);
  if ((audit.from > 0 && first == nullptr) || recording == nullptr) return End(run, audit);
  audit.recording = *recording;
  std::vector<ShardMove> moves;
  if (first != nullptr) {
    Cell cell = *run.assignment().Find(audit.cell);
    cell.worker = *audit.auditor;
    moves = MovesFor(*first, std::span(&cell, 1));
    shards_.BeginAuditMoves(run, audit.from, moves, audit.by_way);
  }
  const bool is_there = IsHeldBy(*recording, audit.auditor->value()) || IsCopied(*recording);
  if (!is_there) {
    shards_.BeginAuditMoves(run, audit.end, {ShardMove{*recording, *audit.auditor}}, audit.by_way);
  }
}

void Audits::AfterMove(Run& run, const std::string& failure) {
  Audit* const audit = Moving(run);
  if (audit != nullptr && !failure.empty()) audit->failure = failure;
}

void Audits::JudgeMissing(Run& run, Audit& audit) {
  if (!std::exchange(audit.by_way, true)) return BeginMoves(run, audit);
  const WorkerId accused = audit.accused;
  const std::string label = audit.label, failure = audit.failure;
  const uint64_t from = audit.from, end = audit.end;
  End(run, audit);
  NoteWithheld(run, accused, label, from, end, failure);
}

void Audits::SendAudit(Run& run, Audit& audit) {
  const v1::CheckpointManifest* first = FindCheckpoint(run.record, audit.from);
  const Worker& auditor = *ledger_.FindWorker(*audit.auditor);
  Assignment assignment = run.assignment();
  for (Cell& cell : assignment.cells) {
    if (cell.id != audit.cell) continue;
    cell.worker = auditor.id;
    cell.worker_name = auditor.hello.name();
  }
  assignment.start_step = audit.from;
  assignment.microbatches_before = MicrobatchesAt(run.record, audit.from);
  SealAssignment(ledger_.options().lead, &assignment);
  v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
  v1::Audit& wanted = *command.mutable_audit();
  wanted.set_audit(audit.id);
  wanted.set_end_step(audit.end);
  *wanted.mutable_recording() = audit.recording;
  v1::Assign& assign = *wanted.mutable_assign();
  *assign.mutable_assignment() = ToProto(assignment);
  *assign.mutable_cell() = ToProto(audit.cell);
  // No link uses these: their assignment is nobody's.
  for (const Edge& edge : assignment.edges) {
    if (edge.from != audit.cell && edge.to != audit.cell) continue;
    (*assign.mutable_edge_secrets())[edge.id.value()] =
        EdgeSecret(run.record.link_secret, assignment.hash, edge.id);
  }
  if (first != nullptr) {
    for (v1::CheckpointFile& file : FilesOfCell(*first, *assignment.Find(audit.cell))) {
      *assign.add_resume_files() = std::move(file);
    }
  }
  audit.computes = true;
  const double steps = static_cast<double>(audit.end - audit.from);
  audit.until = ledger_.now() + kAuditSlack +
                absl::Seconds(kAuditSlowness * steps * run.record.plan->prediction.step_seconds);
  ledger_.Send(auditor, std::move(command));
}

void Audits::OnReport(Worker& worker, const v1::WorkerMessage& message) {
  Run* const run = ledger_.FindRun(RunId(message.run_id()));
  Audit* const audit = run == nullptr ? nullptr : Find(*run, message.audited().audit());
  if (audit == nullptr || audit->auditor != worker.id || !audit->computes ||
      !HasStages(run->record.state)) {
    return;  // given up
  }
  Judge(*run, *audit, worker, message.audited());
}

void Audits::Judge(Run& run, Audit& audit, const Worker& auditor, const v1::AuditReport& report) {
  OfRun& of = of_[run];
  const std::string what = fmt::format("{} of {}", StepsText(audit.from, audit.end), audit.label);
  const std::string by = ledger_.Label(auditor);
  std::string difference;
  if (!report.problem().empty() && !report.recording_faulty()) {
    ledger_.Log(&run, "verify", "worker {} cannot audit {}: {}", by, what,
                Quoted(report.problem()));
    TryAnother(run, audit);
    return;
  }
  if (report.recording_faulty()) {
    difference = fmt::format(
        "{} cannot be computed again by worker {}, because the recording of "
        "what it received is none: {}",
        what, by, Quoted(report.problem()));
  } else {
    const AuditedWork audited{{report.steps().begin(), report.steps().end()},
                              {report.files().begin(), report.files().end()}};
    if (const std::string why = WhyIncomparable(audit.said, audited); !why.empty()) {
      if (of.incomparable.insert({audit.accused, auditor.id}).second) {
        ledger_.Log(&run, "verify", "worker {} cannot audit {}: {}", by, what, why);
      }
      TryAnother(run, audit);
      return;
    }
    if (const auto differs = DifferenceOf(audit.said, audited)) {
      difference =
          fmt::format("{}, computed again by worker {}, gave something else at step {}: {}", what,
                      by, differs->step, differs->what);
    }
  }
  if (difference.empty()) {
    const std::optional<WorkerId> accuser = audit.accuser;
    if (accuser) {
      const Worker* const liar = ledger_.FindWorker(*accuser);
      return Evict(run, audit, *accuser,
                   fmt::format("the audit of worker {} is false: {} were computed again by worker "
                               "{}, too, which found what {} had reported",
                               liar == nullptr ? accuser->value() : ledger_.Label(*liar), what, by,
                               audit.label));
    }
    of.withheld.erase(audit.accused);
    if (std::has_single_bit(++of.passed)) {
      ledger_.Log(&run, "verify",
                  "audits that agreed bit for bit: {}; the newest one: {} by worker {}", of.passed,
                  what, by);
    }
    End(run, audit);
    return;
  }
  if (audit.accuser) return Evict(run, audit, audit.accused, difference);
  audit.accuser = auditor.id;
  audit.difference = difference;
  ledger_.Log(&run, "verify", "an audit has failed: {}", difference);
  TryAnother(run, audit);
}

void Audits::TryAnother(Run& run, Audit& audit) {
  audit.auditor.reset();
  Begin(run, audit);
}

void Audits::End(Run& run, const Audit& audit) {
  std::erase_if(of_[run].audits, [id = audit.id](const Audit& one) { return one.id == id; });
  NotePinned(run);
  copies_.DropOutdated(run);
}

void Audits::Evict(Run& run, const Audit& audit, const WorkerId& worker, const std::string& cause) {
  const uint64_t from = audit.from;
  // Both may be parts of the audit, which ends here.
  const WorkerId evicted = worker;     // NOLINT(performance-unnecessary-copy-initialization)
  const std::string sentence = cause;  // NOLINT(performance-unnecessary-copy-initialization)
  End(run, audit);
  // Its word counts for nothing any more.
  for (Audit& other : of_[run].audits) {
    if (other.accuser == evicted) other.accuser.reset();
  }
  verdicts_.Evict(run, {evicted}, from, sentence);
}

MonoTime Audits::NextWake() const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, of] : of_) {
    for (const Audit& audit : of.audits) {
      if (audit.auditor && audit.computes) wake = std::min(wake, audit.until);
    }
  }
  return wake;
}

void Audits::OnMove(Run& run, const Transition& row) {
  if (!EndsEpoch(row) && !HasEnded(row.to)) return;
  OfRun& of = of_[run];
  of.kept.clear();
  of.kept_bytes = 0;
  of.audits.clear();
  run.audited.clear();
}

}  // namespace longhaul::coordinator
