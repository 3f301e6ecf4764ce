// What running stages report: steps, validation, checkpoints, links.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/hash.h"
#include "coordinator/planner/replicas.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// Steps and checkpoints that wait for some stages' reports. Where the coordinator was away, one
// stage tells all that it has kept before another is back; more means that reports were lost.
constexpr size_t kMaxPartialSteps = 8192;
constexpr size_t kMaxPartialCheckpoints = 1024;
constexpr size_t kRecentSteps = 32;
constexpr absl::Duration kStoreStepEvery = absl::Seconds(1);

double Sane(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

bool IsShard(const v1::CheckpointFile& file) {
  return IsSha256Hex(file.sha256()) && !file.name().empty() && file.name().size() <= 255 &&
         file.name().find('/') == std::string::npos && file.name()[0] != '.';
}

// Of all stages, which have layers each. Where one says nothing there is nothing to say.
void AddExpertLoad(const Run& run, const PartialStep& partial, v1::StepRecord* record) {
  v1::ExpertLoad load;
  double sum = 0;
  uint32_t layers = 0;
  for (const StageRecord& stage : run.stages) {
    const v1::StepReport& report = *partial.reports[stage.place];
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
  *record->mutable_expert_load() = load;
}

void AddValidation(const v1::ValidationReport& report, v1::StepRecord* record) {
  record->set_has_validation(true);
  record->set_validation_loss(report.loss());
  if (report.has_clean_loss()) record->set_clean_validation_loss(report.clean_loss());
}

// By the codecs of an edge of which one has state.
std::string_view WhatIsRemembered(const Edge& edge) {
  return PredictsByTokens(edge.forward.codec) ? "tables of tokens" : "message buffers";
}

// What another replica of the stage has written, too. Null: nobody has yet.
v1::CheckpointFile* SameFile(const v1::CheckpointFile& file, uint32_t stage,
                             v1::CheckpointManifest* manifest) {
  for (v1::CheckpointFile& one : *manifest->mutable_files()) {
    if (one.stage() == stage && one.name() == file.name()) return &one;
  }
  return nullptr;
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

std::string ReplicasDiffer(const v1::CheckpointFile& file, const StageRecord& stage,
                           uint64_t step) {
  return fmt::format(
      "{} has other parameters after step {} than the replicas before it ({} has another content), "
      "though all replicas have to have the same",
      ToString(stage.id), step, file.name());
}

}  // namespace

void Core::OnStep(Run& run, StageRecord& stage, const Worker& worker,
                  const v1::WorkerMessage& message) {
  const v1::StepReport& report = message.step();
  const RunState state = run.record.state;
  if ((state != RunState::kRunning && state != RunState::kFinishing) ||
      report.step() > run.record.spec.train.steps) {
    DropMessage(run, worker, message, "a step report of another step or time");
    return;
  }
  stage.started = true;
  run.progressed_at = now_;
  const bool skipped = report.skipped() && run.record.spec.train.on_nonfinite == OnNonfinite::kSkip;
  if (report.first_nonfinite() && !skipped) {
    const std::pair<uint64_t, CellId> here(report.step(), stage.id);
    if (!run.first_nonfinite || here < *run.first_nonfinite) run.first_nonfinite = here;
  }
  if (report.step() <= run.record.step) return;  // known, or given up
  if (!stage.last || report.step() >= stage.last->step()) stage.last = report;
  PartialStep& partial = run.partial_steps[report.step()];
  partial.reports.resize(run.stages.size());
  if (partial.reports[stage.place]) return;
  partial.reports[stage.place] = report;
  Changed(run);

  const bool bad_loss = stage.is_last && report.has_loss() && !std::isfinite(report.loss());
  const bool bad_norm =
      stage.is_first && report.has_norm() && !std::isfinite(report.gradient_norm());
  if ((bad_loss || bad_norm) && !skipped && !run.nonfinite) {
    run.nonfinite = {report.step(),
                     bad_loss ? fmt::format("the loss became {}", report.loss())
                              : fmt::format("the gradient norm became {}", report.gradient_norm()),
                     now_ + kCausePatience};
  }
  const bool all = std::all_of(partial.reports.begin(), partial.reports.end(),
                               [](const auto& one) { return one.has_value(); });
  if (all && run.nonfinite && run.nonfinite->step == report.step()) {
    Fail(run, "");
    return;
  }
  if (all) {
    const PartialStep done = std::move(partial);
    FinishStep(run, report.step(), done);
    run.partial_steps.erase(run.partial_steps.begin(),
                            run.partial_steps.upper_bound(report.step()));
  }
  while (run.partial_steps.size() > kMaxPartialSteps) {
    run.partial_steps.erase(run.partial_steps.begin());
  }
}

void Core::FinishStep(Run& run, uint64_t step, const PartialStep& partial) {
  v1::StepRecord record;
  record.set_step(step);
  record.set_epoch(run.record.epoch.value());
  record.set_replicas(ReplicasOf(run.assignment()));
  record.set_first_microbatch(MicrobatchesAt(run, step - 1));
  double seconds = 0, loss = 0;
  uint32_t losses = 0;
  uint64_t link_bytes = 0, payload_bytes = 0;
  for (const StageRecord& stage : run.stages) {
    const std::optional<v1::StepReport>& report = partial.reports[stage.place];
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
  AddExpertLoad(run, partial, &record);
  if (const auto early = run.validation_early.find(step); early != run.validation_early.end()) {
    AddValidation(early->second, &record);
  }
  run.validation_early.erase(run.validation_early.begin(), run.validation_early.upper_bound(step));
  LogIfSkipped(run, step, partial);
  if (!FileStep(run, &record, partial)) return;
  run.record.step = step;
  // The whole record costs the store a sync of the disk: not for every step of a fast run.
  if (run.record.state == RunState::kFinishing || now_ - run.stored_at >= kStoreStepEvery) {
    Store(run);
  } else {
    Changed(run);
  }
  out_.writes.emplace_back(write::StepDone{run.record.id, record});
  run.recent.push_back(std::move(record));
  if (run.recent.size() > kRecentSteps) run.recent.pop_front();
  if (run.record.state == RunState::kRunning) ConsiderRetune(run, partial);
}

// No stage updated anything in this step.
void Core::LogIfSkipped(Run& run, uint64_t step, const PartialStep& partial) {
  bool skipped = false;
  std::string where;
  for (const StageRecord& stage : run.stages) {
    const v1::StepReport& report = *partial.reports[stage.place];
    skipped = skipped || report.skipped();
    if (!report.first_nonfinite() || !where.empty()) continue;
    where = fmt::format("; such a value appeared in {}", Label(stage));
  }
  if (!skipped) return;
  faults_.Add(FaultKind::kStepNonFinite);
  Log(&run, "loss",
      fmt::format("step {} is skipped, all stages keep their parameters: its gradient norm is not "
                  "finite{}",
                  step, where));
}

void Core::OnValidation(Run& run, const v1::ValidationReport& report) {
  if (run.validation && report.step() <= run.validation->step()) return;
  if (report.step() < run.record.step) return;  // told again, to a coordinator that was restarted
  if (report.step() > run.record.spec.train.steps) return;
  run.validation = report;
  Changed(run);
  Log(&run, "loss", ValidationSentence(report));
  for (v1::StepRecord& record : run.recent) {
    if (record.step() != report.step()) continue;
    AddValidation(report, &record);
    out_.writes.emplace_back(write::StepDone{run.record.id, record});  // in the place of the first
    return;
  }
  if (report.step() <= run.record.step) {
    // Before the first step, or of a step that another epoch has trained.
    const v1::StepRecord* known = run.steps.Find(report.step());
    if (known == nullptr && report.step() > 0) return;
    v1::StepRecord record = known == nullptr ? v1::StepRecord() : *known;
    if (known == nullptr) record.set_epoch(run.record.epoch.value());
    AddValidation(report, &record);
    out_.writes.emplace_back(write::StepDone{run.record.id, std::move(record)});
    return;
  }
  run.validation_early[report.step()] = report;
  if (run.validation_early.size() > kMaxPartialSteps) {
    run.validation_early.erase(run.validation_early.begin());
  }
}

void Core::OnShard(Run& run, StageRecord& stage, const Worker& worker,
                   const v1::WorkerMessage& message) {
  const v1::ShardReport& report = message.shard();
  const RunRecord& record = run.record;
  if (record.state == RunState::kPreparing) {
    DropMessage(run, worker, message, "a checkpoint of a stage that has not started");
    return;
  }
  const uint64_t newest = record.checkpoints.empty() ? 0 : record.checkpoints.back().step();
  if (report.step() <= newest) return;  // committed, or superseded
  if (SkipCheckpoint(run, stage, report)) return;
  if (report.step() > record.spec.train.steps || report.files().empty() ||
      !std::all_of(report.files().begin(), report.files().end(), IsShard)) {
    DropMessage(run, worker, message, "a checkpoint report that names no files or impossible ones");
    return;
  }
  PartialCheckpoint& partial = run.partial_checkpoints[report.step()];
  partial.shards.resize(run.stages.size());
  partial.shards[stage.place] = report;
  const bool all = std::all_of(partial.shards.begin(), partial.shards.end(),
                               [](const auto& one) { return one.has_value(); });
  if (all) {
    const PartialCheckpoint done = std::move(partial);
    run.partial_checkpoints.erase(run.partial_checkpoints.begin(),
                                  run.partial_checkpoints.upper_bound(report.step()));
    CommitCheckpoint(run, report.step(), done);
  }
  while (run.partial_checkpoints.size() > kMaxPartialCheckpoints) {
    run.partial_checkpoints.erase(run.partial_checkpoints.begin());
  }
}

void Core::CommitCheckpoint(Run& run, uint64_t step, const PartialCheckpoint& partial) {
  RunRecord& record = run.record;
  v1::CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_run_id(record.id.value());
  manifest.set_epoch(record.epoch.value());
  manifest.set_step(step);
  manifest.set_committed_unix_ms(unix_ms_);
  manifest.set_interim(true);
  manifest.set_microbatches(MicrobatchesAt(run, step));
  for (const Cell& cell : run.assignment().cells) *manifest.add_cells() = ToProto(cell);
  for (const StageRecord& stage : run.stages) {
    if (!partial.shards[stage.place]->interim()) manifest.set_interim(false);
    for (const v1::CheckpointFile& file : partial.shards[stage.place]->files()) {
      v1::CheckpointFile* one = SameFile(file, stage.id.stage, &manifest);
      if (one == nullptr) {
        one = manifest.add_files();
        *one = file;
        one->set_stage(stage.id.stage);
        one->clear_holders();
      } else if (one->sha256() != file.sha256()) {
        Fail(run, ReplicasDiffer(*one, stage, step));
        return;
      }
      AddHolder(stage.worker.value(), stage.name, one);
    }
  }
  const bool interim = manifest.interim();
  record.checkpoints.push_back(std::move(manifest));
  Store(run);
  if (!interim) Log(&run, "checkpoint", fmt::format("checkpoint of step {} is committed", step));
  for (const StageRecord& stage : run.stages) health_.DidWell(stage.worker);
  DropOutdated(run);
  if (!interim) KeepCopies(run, record.checkpoints.back(), "");
  if (record.state == RunState::kStopped) {
    record.reason =
        fmt::format("stopped by request after step {}{}", record.step, HowToResume(run));
  }
}

void Core::OnLink(Run& run, StageRecord& stage, const v1::LinkEvent& link) {
  const Edge* edge = run.assignment().Find(EdgeId(link.edge()));
  if (edge == nullptr || (edge->from != stage.id && edge->to != stage.id)) return;
  const std::string pair =
      fmt::format("{} and {}", Label(stage), Label(*run.Find(edge->PeerOf(stage.id))));
  const auto known = run.troubled_links.find(edge->id);
  const bool troubled =
      known != run.troubled_links.end() && known->second.stages.contains(stage.id);
  if (link.state() == "suspect") {
    if (troubled) return;
    faults_.Add(FaultKind::kLinkSuspect);
    run.troubled_links[edge->id].stages[stage.id] = false;
    Log(&run, "link",
        fmt::format("the link between {} is suspect: silent for {:.1f} s", pair,
                    Sane(link.silence_seconds())));
  } else if (link.state() == "lost") {
    LinkTrouble& trouble = run.troubled_links[edge->id];
    const bool told = std::any_of(trouble.stages.begin(), trouble.stages.end(),
                                  [](const auto& one) { return one.second; });
    trouble.stages[stage.id] = true;
    trouble.lost_at = now_;
    if (told) return;
    faults_.Add(FaultKind::kLinkLost);
    Log(&run, "link",
        fmt::format("the link between {} is lost and being made again: {}", pair,
                    Quoted(link.reason())));
  } else if (link.state() == "healthy") {
    if (!troubled) return;
    known->second.stages.erase(stage.id);
    if (known->second.stages.empty()) run.troubled_links.erase(known);
    Log(&run, "link", fmt::format("the link between {} is healthy again", pair));
  } else if (link.state() == "forgotten") {
    Log(&run, "link",
        fmt::format("the {} between {} begin anew: they could not be brought back to "
                    "the checkpoint of step {}, so the losses may differ from an unbroken run's",
                    WhatIsRemembered(*edge), pair, run.assignment().start_step));
  } else if (link.state() == "healed") {
    if (known == run.troubled_links.end()) return;  // the other side has told of it
    OnLinkHealed(run, stage, link, pair);
  }
  Changed(run);
}

// One event for both sides, when the last that missed the other has it again.
void Core::OnLinkHealed(Run& run, const StageRecord& stage, const v1::LinkEvent& link,
                        const std::string& pair) {
  const auto known = run.troubled_links.find(EdgeId(link.edge()));
  LinkTrouble& trouble = known->second;
  trouble.stages.erase(stage.id);
  trouble.away_seconds = std::max(trouble.away_seconds, Sane(link.silence_seconds()));
  trouble.frames_resent += link.frames_resent();
  if (!trouble.stages.empty()) return;
  Log(&run, "link",
      fmt::format("the link between {} is healed after {:.1f} s, {} frames sent again", pair,
                  trouble.away_seconds, trouble.frames_resent));
  run.troubled_links.erase(known);
}

}  // namespace longhaul::coordinator
