#include "coordinator/state/shards/commits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

// Checkpoints that wait for some stages' reports.
constexpr size_t kMaxPartialCheckpoints = 1024;
constexpr size_t kMaxPartialShardBytes = 16 << 20;
// More than these are not told apart from steps that nobody has written yet.
constexpr size_t kMaxSkipped = 64;

bool IsShard(const v1::CheckpointFile& file) {
  return IsSha256Hex(file.sha256()) && !file.name().empty() && file.name().size() <= 255 &&
         file.name().find('/') == std::string::npos && file.name()[0] != '.';
}

// The same file as another replica of the stage has written it. Null: none has yet.
v1::CheckpointFile* SameFile(const v1::CheckpointFile& file, uint32_t stage,
                             v1::CheckpointManifest* manifest) {
  for (v1::CheckpointFile& one : *manifest->mutable_files()) {
    if (one.stage() == stage && one.name() == file.name()) return &one;
  }
  return nullptr;
}

std::string ReplicasDiffer(const v1::CheckpointFile& file, const StageRecord& stage,
                           uint64_t step) {
  return fmt::format(
      "{} has other parameters after step {} than the replicas before it ({} has another content), "
      "though all replicas have to have the same",
      ToString(stage.id), step, file.name());
}

}  // namespace

void Commits::OnShard(Run& run, StageRecord& stage, const Worker& worker,
                      const v1::WorkerMessage& message) {
  const v1::ShardReport& report = message.shard();
  const RunRecord& record = run.record;
  if (record.state == RunState::kPreparing) {
    ledger_.DropMessage(run, worker, message, "a checkpoint of a stage that has not started");
    return;
  }
  const uint64_t newest = record.checkpoints.empty() ? 0 : record.checkpoints.back().step();
  if (report.step() <= newest) return;  // committed, or superseded
  if (Skip(run, stage, report)) return;
  if (report.step() > record.spec.train.steps || report.files().empty() ||
      !std::all_of(report.files().begin(), report.files().end(), IsShard) ||
      (report.has_recording() && !IsShard(report.recording()))) {
    ledger_.DropMessage(run, worker, message,
                        "a checkpoint report that names no files or impossible ones");
    return;
  }
  OfRun& of = of_[run];
  Reports& reports = of.partial[report.step()];
  reports.resize(run.stages.size());
  if (reports[stage.place]) of.partial_bytes -= reports[stage.place]->ByteSizeLong();
  reports[stage.place] = report;
  of.partial_bytes += report.ByteSizeLong();
  const bool all = std::ranges::all_of(reports, [](const auto& one) { return one.has_value(); });
  if (all) {
    const Reports done = reports;
    while (!of.partial.empty() && of.partial.begin()->first <= report.step()) {
      DropPartial(of, of.partial.begin());
    }
    Commit(run, report.step(), done);  // may end the epoch, and forget `of`
    return;
  }
  while (of.partial.size() > kMaxPartialCheckpoints || of.partial_bytes > kMaxPartialShardBytes) {
    DropPartial(of, of.partial.begin());
  }
}

void Commits::DropPartial(OfRun& of, std::map<uint64_t, Reports>::iterator step) {
  for (const std::optional<v1::ShardReport>& report : step->second) {
    if (report) of.partial_bytes -= report->ByteSizeLong();
  }
  of.partial.erase(step);
}

void Commits::Commit(Run& run, uint64_t step, const Reports& reports) {
  RunRecord& record = run.record;
  v1::CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_run_id(record.id.value());
  manifest.set_epoch(record.epoch.value());
  manifest.set_step(step);
  manifest.set_committed_unix_ms(ledger_.unix_ms());
  manifest.set_interim(true);
  manifest.set_microbatches(MicrobatchesAt(run, step));
  for (const Cell& cell : run.assignment().cells) *manifest.add_cells() = ToProto(cell);
  for (const StageRecord& stage : run.stages) {
    if (!reports[stage.place]->interim()) manifest.set_interim(false);
    for (const v1::CheckpointFile& file : reports[stage.place]->files()) {
      v1::CheckpointFile* one = SameFile(file, stage.id.stage, &manifest);
      if (one == nullptr) {
        one = manifest.add_files();
        *one = file;
        one->set_stage(stage.id.stage);
        one->clear_holders();
      } else if (one->sha256() != file.sha256()) {
        failures_.Fail(run, ReplicasDiffer(*one, stage, step));
        return;
      }
      AddHolder(stage.worker.value(), stage.name, one);
    }
    if (!reports[stage.place]->has_recording()) continue;
    v1::CheckpointFile& recording = *manifest.add_recordings();
    recording = reports[stage.place]->recording();
    recording.set_stage(stage.id.stage);
    recording.clear_holders();
    AddHolder(stage.worker.value(), stage.name, &recording);
  }
  const uint64_t begun = run.assignment().start_step;
  const uint64_t before =
      record.checkpoints.empty() ? begun : std::max(begun, record.checkpoints.back().step());
  const bool interim = manifest.interim();
  record.checkpoints.push_back(std::move(manifest));
  ledger_.Store(run);
  if (!interim) ledger_.Log(&run, "checkpoint", "checkpoint of step {} is committed", step);
  for (const StageRecord& stage : run.stages) health_.DidWell(stage.worker);
  if (committed_) committed_(run, before, step, reports);
  copies_.DropOutdated(run);
  if (!interim) copies_.KeepAtCoordinator(run, record.checkpoints.back());
  if (!interim) hooks_.OnCommit(run, step);
  if (record.state == RunState::kStopped) {
    record.reason =
        fmt::format("stopped by request after step {}{}", record.step, HowToResume(run.record));
  }
}

bool Commits::Skip(Run& run, const StageRecord& stage, const v1::ShardReport& report) {
  const uint64_t step = report.step();
  v1::WorkerCommand drop = ledger_.CommandFor(run.record.id, run.record.epoch);
  drop.mutable_drop_checkpoint()->set_step(step);
  OfRun& of = of_[run];
  const bool known = of.skipped.contains(step);
  if (report.problem().empty()) {
    // The other stages have no use for theirs.
    const Worker* worker = ledger_.LiveWorkerOf(stage.worker, stage.incarnation);
    if (known && worker != nullptr) ledger_.Send(*worker, std::move(drop));
    return known;
  }
  if (known) return true;
  of.skipped.insert(step);
  if (of.skipped.size() > kMaxSkipped) of.skipped.erase(of.skipped.begin());
  if (const auto known_as = of.partial.find(step); known_as != of.partial.end()) {
    DropPartial(of, known_as);
  }
  ledger_.Count(FaultKind::kCheckpointSkipped);
  ledger_.Log(&run, "checkpoint", "the checkpoint of step {} is skipped, training goes on: {}: {}",
              step, ledger_.Label(stage), Quoted(report.problem()));
  for (const StageRecord& one : run.stages) {
    const Worker* worker = ledger_.LiveWorkerOf(one.worker, one.incarnation);
    if (worker != nullptr) ledger_.Send(*worker, drop);
  }
  return true;
}

void Commits::OnMove(Run& run, const Transition& row) {
  if (EndsEpoch(row)) of_.Forget(run.record.id);
}

}  // namespace longhaul::coordinator
