// Measure, plan, assign; for a run or for `longhaul plan`.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/units.h"
#include "coordinator/planner/place_workers.h"
#include "coordinator/planner/planner.h"
#include "coordinator/planner/replicas.h"
#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/layer_times.h"
#include "coordinator/state/resume.h"
#include "coordinator/state/text.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"
#include "run/tokens/token_file.h"

namespace longhaul::coordinator {
namespace {

// Of a worker that times its layers anew, others beside it may have come or gone.
constexpr absl::Duration kLayerTimesHold = absl::Minutes(10);

uint32_t StagesWith(const RunSpec& spec, const std::vector<Worker*>& workers) {
  return static_cast<uint32_t>(workers.size()) / spec.replicas.count;
}

std::vector<Edge> EdgesFor(const RunSpec& spec, const std::vector<Worker*>& workers) {
  return chain::MakeEdges(spec.replicas.count, StagesWith(spec, workers),
                          spec.model.TrainsTiedMatrix());
}

// Who is to hold a cell.
Worker& WorkerAt(const RunSpec& spec, const std::vector<Worker*>& workers, const CellId& cell) {
  return *workers[chain::PlaceOf(cell, StagesWith(spec, workers))];
}

// Of the first one's kind, which is timed; their memory is that of the smallest among those that a
// group takes.
void AddDevices(const RunSpec& spec, const v1::Hello& hello, CandidateWorker* worker) {
  for (int i = 0; i < hello.devices_size(); ++i) {
    const v1::Device& device = hello.devices(i);
    if (device.kind() != hello.devices(0).kind()) continue;
    if (worker->devices.size() < spec.group.tensor && !spec.replay) {
      worker->memory_bytes = std::min(worker->memory_bytes, device.memory_bytes());
      if (!device.uuid().empty()) worker->shared_devices.push_back(device.uuid());
    }
    worker->devices.push_back(static_cast<uint32_t>(i));
    worker->device_memory_bytes.push_back(device.memory_bytes());
    if (!worker->on_gpu) worker->cores += device.cores();
  }
}

}  // namespace

CandidateWorker Core::CandidateOf(const RunSpec& spec, const Worker& worker) const {
  CandidateWorker one;
  one.id = worker.id;
  one.incarnation = worker.incarnation;
  one.name = worker.hello.name();
  if (spec.replay) {
    // It takes next to none of its worker's memory; it is planned for another machine.
    one.memory_bytes = spec.replay->memory_bytes;
  } else if (!worker.hello.devices().empty()) {
    // It computes on the first that it names.
    const v1::Device& device = worker.hello.devices(0);
    one.memory_bytes = device.memory_bytes();
    one.on_gpu = device.kind() == "cuda";
    one.device = device.name();
    if (one.on_gpu) one.host_memory_bytes = device.host_memory_bytes();
  }
  one.endpoints = FromProto(worker.hello.endpoints());
  AddDevices(spec, worker.hello, &one);
  AddReach(&one);
  one.relays = RelaysNow();
  return one;
}

void Core::SettleDtype(const std::vector<Worker*>& workers, RunSpec* spec) const {
  if (spec->train.dtype != ComputeDtype::kAuto) return;
  const bool on_gpus = std::ranges::all_of(
      workers, [&](const Worker* worker) { return CandidateOf(*spec, *worker).on_gpu; });
  spec->train.dtype = on_gpus ? ComputeDtype::kBf16 : ComputeDtype::kFp32;
}

Status Core::CheckNeighbours(const RunSpec& spec, const std::vector<Worker*>& workers) const {
  for (const Edge& edge : EdgesFor(spec, workers)) {
    LH_RETURN_IF_ERROR(EndsOf(spec, CandidateOf(spec, WorkerAt(spec, workers, edge.from)),
                              CandidateOf(spec, WorkerAt(spec, workers, edge.to)), edge.kind)
                           .status());
  }
  return absl::OkStatus();
}

Status Core::CheckLinks(const RunSpec& spec, const StatusOr<Candidates>& candidates,
                        bool may_wait) const {
  if (!candidates.ok()) return absl::OkStatus();  // it waits; the plan will be checked then
  std::vector<Worker*> workers = candidates->workers;
  std::vector<CandidateWorker> all;
  for (const Worker* worker : workers) all.push_back(CandidateOf(spec, *worker));
  LH_RETURN_IF_ERROR(CheckDevices(spec, all));
  // Of replicas whose number is open, one.
  const auto chain = static_cast<uint32_t>(spec.pipeline.stages.value_or(1));
  if (candidates->choose) {
    workers.resize(spec.replicas.count_auto ? chain : *candidates->choose);
  }
  for (const Edge& edge : EdgesFor(spec, workers)) {
    const Worker& upper = WorkerAt(spec, workers, edge.from);
    const Worker& lower = WorkerAt(spec, workers, edge.to);
    if (may_wait && IsTryingReach(spec, upper, lower, edge.kind)) {
      return absl::UnavailableError(fmt::format("workers {} and {} are trying to reach each other",
                                                Label(upper), Label(lower)));
    }
  }
  const Status by_name = CheckNeighbours(spec, workers);
  if (by_name.ok() || !candidates->choose) return by_name;
  const uint32_t stages =
      spec.replicas.count_auto ? chain : *candidates->choose / spec.replicas.count;
  return MayBePlaced(spec, all, stages) ? absl::OkStatus() : by_name;
}

Draft Core::NewDraft(const RunId& id, Epoch epoch, const RunSpec& spec,
                     std::vector<v1::DataFile> files, std::string link_secret,
                     const Candidates& candidates) {
  const std::vector<Worker*>& workers = candidates.workers;
  Draft draft;
  draft.candidates_for = candidates.choose;
  draft.run = id;
  draft.epoch = epoch;
  draft.spec = spec;
  draft.files = std::move(files);
  draft.link_secret = std::move(link_secret);
  draft.began = now_;
  draft.measure_until = now_ + options_.measure_timeout;
  draft.reach_until = ReachPatience();
  for (Worker* worker : workers) {
    worker->held = id;
    draft.workers.push_back({worker->id, worker->incarnation, std::nullopt});
  }
  if (candidates.choose) return draft;  // its survey says which links are measured
  std::vector<ProbeEdge> edges;
  for (const Edge& edge : EdgesFor(spec, workers)) {
    const ProbeEdge one{edge.id, WorkerAt(spec, workers, edge.from).id,
                        WorkerAt(spec, workers, edge.to).id, edge.kind};
    // Of two stages the tied edge joins those that another one joins.
    const bool known = std::ranges::any_of(edges, [&](const ProbeEdge& other) {
      return other.from == one.from && other.to == one.to;
    });
    if (!known) edges.push_back(one);
  }
  draft.probes = ProbeRounds(std::move(edges));
  return draft;
}

void Core::BeginDraft(Draft& draft) {
  out_.commands.emplace_back(command::PrepareData{
      draft.run, draft.files, draft.spec.data.tokenizer, draft.spec.validation.share,
      draft.spec.data.list_sha256, draft.spec.model.context});
  ReuseLayerTimes(draft);
  for (const Draft::Candidate& candidate : draft.workers) {
    if (!candidate.times) {
      SendMeasure(*FindWorker(candidate.id), draft.run, draft.epoch, draft.spec);
    }
  }
  if (draft.resume_step == 0) return;
  const Run& run = *FindRun(draft.run);
  for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
    if (manifest.step() != draft.resume_step) continue;
    CheckCheckpoint(run, manifest, ShardCheck::Purpose::kResume, RequestId(0));
  }
}

void Core::ReuseLayerTimes(Draft& draft) {
  const Run* run = FindRun(draft.run);
  if (run == nullptr || draft.epoch.value() == 1 || draft.spec.replay) return;
  std::vector<std::string> names;
  absl::Duration oldest;
  for (Draft::Candidate& candidate : draft.workers) {
    const Worker& worker = *FindWorker(candidate.id);
    if (!worker.layers || !HaveSameLayerTimes(worker.layers->spec, draft.spec)) continue;
    const absl::Duration age = longhaul::operator-(now_, worker.layers->at);
    if (age > kLayerTimesHold) continue;
    // A worker that is still ending its last epoch would miss the measurement of its links. To be
    // timed makes it wait for that end, and so does what it says of the stage that it keeps.
    if (draft.spec.links.measure && worker.resident.run_id() != draft.run.value()) continue;
    candidate.times = worker.layers->times;
    names.push_back(Label(worker));
    oldest = std::max(oldest, age);
  }
  if (names.empty()) return;
  Log(run, "note",
      fmt::format("these layers were timed within the last {} on {}: those times are used again",
                  longhaul::FormatDuration(oldest), Join(names)));
}

void Core::SendMeasure(const Worker& worker, const RunId& run, Epoch epoch, const RunSpec& spec) {
  v1::WorkerCommand command = CommandFor(run, epoch);
  v1::Measure& measure = *command.mutable_measure();
  measure.set_run_yaml(ToYaml(spec));
  // Known before the data are prepared: it is the tokenizer's.
  const auto tokenizer = Tokenizer::Create(spec.data.tokenizer);
  measure.set_vocabulary(!spec.data.sets.empty() ? spec.data.vocabulary
                         : tokenizer.ok()        ? (*tokenizer)->vocabulary()
                                                 : 256);
  Send(worker, std::move(command));
}

Draft* Core::FindDraft(const RunId& id) {
  if (const auto it = jobs_.find(id); it != jobs_.end()) return &it->second.draft;
  Run* run = FindRun(id);
  return run != nullptr && run->draft ? &*run->draft : nullptr;
}

void Core::On(event::DataPrepared& prepared) {
  Draft* draft = FindDraft(prepared.run);
  if (draft == nullptr || draft->data) return;  // stopped meanwhile, or said twice
  if (!prepared.data.ok()) {
    FailDraft(prepared.run,
              fmt::format("the data could not be prepared: {}", Message(prepared.data.status())));
    return;
  }
  // Data sets are checked where they are submitted: validation may have files of its own.
  const Status size = draft->spec.data.sets.empty()
                          ? CheckDataSize(draft->spec, prepared.data->tokens)
                          : absl::OkStatus();
  if (!size.ok()) {
    FailDraft(prepared.run, std::string(Message(size)));
    return;
  }
  const Run* run = FindRun(prepared.run);
  if (run != nullptr && run->record.data && draft->resume_step > 0 &&
      run->record.data->token_file_sha256 != prepared.data->token_file_sha256) {
    FailDraft(prepared.run,
              fmt::format("the data set's hash is {} and was {} when the run began; a resumed run "
                          "needs the same data",
                          prepared.data->token_file_sha256, run->record.data->token_file_sha256));
    return;
  }
  draft->data = *std::move(prepared.data);
  AdvanceDraft(prepared.run);
}

void Core::OnDraftMessage(Worker& worker, Draft& draft, const v1::WorkerMessage& message) {
  if (message.has_error()) {
    const std::string cause = fmt::format("worker {} could not time its layers: {}", Label(worker),
                                          Quoted(message.error().message()));
    if (message.error().restarts_for() == v1::WORKER_FAULT_NONE) {
      if (DropCandidate(draft, worker, cause)) return;
      FailDraft(draft.run, cause);
    } else {
      InterruptDraft(draft.run, cause);
    }
    return;
  }
  if (message.has_link_probed()) {
    OnLinkProbed(worker, draft, message.link_probed());
    return;
  }
  if (!message.has_layer_times()) return;
  Draft::Candidate* candidate = draft.Find(worker.id, worker.incarnation);
  if (candidate->times) return;
  if (!IsPlausible(message.layer_times())) {
    FailDraft(draft.run, fmt::format("worker {} reported layer times that cannot be (negative, not "
                                     "finite or above an hour)",
                                     Label(worker)));
    return;
  }
  candidate->times = message.layer_times();
  if (!draft.spec.replay) {  // whose times are those of another machine
    worker.layers = {draft.spec, message.layer_times(), now_};
  }
  if (Run* run = FindRun(draft.run)) {
    Changed(*run);
    NoteLayerTimes(*run, draft, worker);
  }
  AdvanceDraft(draft.run);
}

// How long it took, once all are in: where planning is slow, people ask what it waits for.
void Core::NoteLayerTimes(const Run& run, const Draft& draft, const Worker& last) {
  if (draft.spec.replay) return;
  for (const Draft::Candidate& candidate : draft.workers) {
    if (!candidate.times) return;
  }
  const auto text = [](double value) { return longhaul::FormatDuration(absl::Seconds(value)); };
  const v1::LayerTimes& times = last.layers->times;
  std::string why;
  if (times.seconds_taken() > 0) why = fmt::format(", took {}", text(times.seconds_taken()));
  if (times.seconds_waited() >= 0.1) {
    why += fmt::format(" and waited {} for others on its GPU before", text(times.seconds_waited()));
  }
  Log(&run, "note",
      fmt::format("layers are timed, within {}: worker {} was the last{}",
                  longhaul::FormatDuration(longhaul::operator-(now_, draft.began)), Label(last),
                  why));
}

bool Core::Complete(const Draft& draft) const {
  if (!draft.data) return false;
  for (const Draft::Candidate& candidate : draft.workers) {
    if (!candidate.times) return false;
  }
  return !shards_.IsCheckingToResume(draft.run);
}

std::vector<CandidateWorker> Core::CandidatesOf(const Draft& draft) const {
  std::vector<CandidateWorker> candidates;
  for (const Draft::Candidate& candidate : draft.workers) {
    CandidateWorker& one =
        candidates.emplace_back(CandidateOf(draft.spec, *FindWorker(candidate.id)));
    AddMeasuredLinks(draft, &one);
  }
  return candidates;
}

bool Core::DropCandidate(Draft& draft, Worker& worker, const std::string& why) {
  if (!draft.candidates_for) return false;
  const bool is_open = draft.spec.replicas.count_auto;
  const uint32_t least = is_open ? draft.spec.pipeline.stages.value_or(1) : *draft.candidates_for;
  if (draft.workers.size() <= least) return false;
  if (draft.probes.HasBegun()) return false;  // it is spoken of in too many places
  std::erase_if(draft.workers, [&](const auto& one) { return one.id == worker.id; });
  if (is_open) {
    draft.candidates_for =
        std::min(*draft.candidates_for, static_cast<uint32_t>(draft.workers.size()));
  }
  worker.held.reset();
  SendAbort(worker, draft.run, draft.epoch, "the plan does without this worker");
  Log(FindRun(draft.run), "note", fmt::format("the plan does without {}: {}", Label(worker), why));
  AdvanceDraft(draft.run);
  return true;
}

PlanRequest Core::PlanRequestOf(const Draft& draft) const {
  PlanRequest request;
  request.run = draft.run;
  request.epoch = draft.epoch;
  request.spec = draft.spec;
  request.data = *draft.data;
  const auto run = runs_.find(draft.run);
  if (draft.resume_step > 0 && run != runs_.end()) {
    for (const v1::CheckpointManifest& manifest : run->second.record.checkpoints) {
      if (manifest.step() != draft.resume_step) continue;
      request.resume.emplace().step = manifest.step();
      for (const v1::Cell& cell : manifest.cells()) {
        request.resume->cells.push_back(FromProto(cell));
      }
    }
  }
  request.workers = CandidatesOf(draft);
  for (size_t i = 0; i < draft.workers.size(); ++i) {
    request.workers[i].times = *draft.workers[i].times;
  }
  request.candidates_for = draft.candidates_for;
  request.only_measured = draft.survey.IsSettled();
  request.assumed_line_bits_per_second = draft.assumed_line_bits_per_second;
  request.assumed_delay = draft.assumed_delay;
  request.with_codec_table = jobs_.contains(draft.run);
  return request;
}

void Core::AdvanceDraft(const RunId& id) {
  Draft* draft = FindDraft(id);
  if (draft == nullptr) return;
  draft->awaits_reach = false;
  if (!Complete(*draft)) return;
  draft->awaits_reach = now_ < draft->reach_until && IsTryingReach(*draft);
  if (draft->awaits_reach) return;
  Run* run = jobs_.contains(id) ? nullptr : FindRun(id);
  const bool resumes = run != nullptr && draft->resume_step > 0;
  if (resumes && !SettleOnCheckpoint(*run)) return;
  // A plan that relies on guesses is made again with what they turn out to be.
  if (draft->plan && SurveyGoesOn(*draft)) draft->plan.reset();
  if (!LinksAreMeasured(*draft)) return;
  // While it was computed its checkpoint may have turned out to be damaged.
  if (draft->plan && draft->plan->assignment.start_step != draft->resume_step) draft->plan.reset();
  if (!draft->plan) {
    if (!draft->computation) Compute(*draft);
  } else if (run == nullptr) {
    v1::PlanReply reply;
    *reply.mutable_plan() = ToProto(*draft->plan);
    EndJob(id, std::move(reply));
  } else if (!resumes || ShardsAreInPlace(*run, *draft->plan)) {
    AdoptPlan(*run, *std::move(draft->plan));
  }
}

void Core::DropPlan(Draft& draft) {
  draft.awaits_reach = true;  // so that it goes on at the end of this tick
  Cancel(draft.computation);
  draft.plan.reset();
}

void Core::AdvanceDraftsOnReach() {
  std::vector<RunId> waiting;
  for (const auto& [id, job] : jobs_) {
    if (job.draft.awaits_reach) waiting.push_back(id);
  }
  for (const auto& [id, run] : runs_) {
    if (run.draft && run.draft->awaits_reach) waiting.push_back(id);
  }
  for (const RunId& id : waiting) AdvanceDraft(id);
}

void Core::FailDraft(const RunId& id, const std::string& sentence) {
  if (jobs_.contains(id)) {
    EndJob(id, absl::FailedPreconditionError(sentence));
  } else {
    Fail(*FindRun(id), sentence);
  }
}

void Core::EndJob(const RunId& id, StatusOr<v1::PlanReply> reply) {
  const auto it = jobs_.find(id);
  Cancel(it->second.draft.computation);
  for (auto& [worker_id, worker] : workers_) {
    if (worker.held != id) continue;
    if (!reply.ok() && worker.session) {
      SendAbort(worker, id, it->second.draft.epoch, "the plan is not wanted any more");
    }
    worker.held.reset();
  }
  out_.commands.emplace_back(command::ReplyPlan{it->second.request, std::move(reply)});
  jobs_.erase(it);
}

void Core::AdoptPlan(Run& run, Plan plan) {
  if (plan.assignment.start_step > 0) DropCheckpointsAfter(run, plan.assignment.start_step);
  for (const Draft::Candidate& candidate : run.draft->workers) {
    const bool is_taken = std::ranges::any_of(
        plan.assignment.cells, [&](const Cell& cell) { return cell.worker == candidate.id; });
    if (!is_taken) FindWorker(candidate.id)->held.reset();
  }
  plan.assignment.microbatches_before = MicrobatchesAt(run.record, plan.assignment.start_step);
  run.record.data = run.draft->data;
  run.stages = StagesOf(plan.assignment);
  for (StageRecord& stage : run.stages) stage.attached = true;
  if (GroupSpec& group = run.record.spec.group; group.is_auto()) {
    const Group& chosen = plan.assignment.cells.front().group;
    const auto note = [&](std::string_view key, uint32_t number) {
      Log(&run, "note", fmt::format("group.{}: the plan chose {}", key, number));
    };
    if (group.tensor_auto) note("tensor", chosen.tensor);
    if (group.expert_auto) note("expert", chosen.expert);
    group = group.Settled(chosen.tensor, chosen.expert);
  }
  SettleReplicas(run, ReplicasOf(plan.assignment));
  SettleCodecs(run, plan.assignment);
  if (std::optional<uint32_t>& slices = run.record.spec.pipeline.slices; !slices) {
    slices = plan.assignment.slices;
    Log(&run, "note", fmt::format("pipeline.slices: the plan chose {}", *slices));
  }
  const std::string explanation = plan.explanation;
  run.record.plan = std::move(plan);
  run.ready_until = now_ + options_.ready_timeout;
  NoteCutShort(run, *run.record.plan);
  if (const auto* manifest = FindCheckpoint(run.record, run.assignment().start_step)) {
    LogReplicas(run, ReplicasOf(*manifest), "");
  }
  Move(run, Trigger::kPlanMade, "", explanation);
}

void Core::NoteCutShort(const Run& run, const Plan& plan) {
  if (plan.prediction.cut_short.empty()) return;
  Log(&run, "plan", fmt::format("the plan may not be the best: {}", plan.prediction.cut_short));
}

void Core::SendAssign(const Worker& worker, const Run& run, const StageRecord& stage) {
  v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
  v1::Assign& assign = *command.mutable_assign();
  const Assignment& assignment = run.assignment();
  *assign.mutable_assignment() = ToProto(assignment);
  *assign.mutable_cell() = ToProto(stage.id);
  // Others for each epoch: who knew those of an older epoch can open no link of this one. And for
  // each edge: who is at its end can open no other.
  const uint64_t epoch = run.record.epoch.value();
  assign.set_link_secret(
      HmacSha256(run.record.link_secret, fmt::format("links of epoch {}", epoch)));
  for (const Edge& edge : assignment.edges) {
    if (edge.from != stage.id && edge.to != stage.id) continue;
    (*assign.mutable_edge_secrets())[edge.id.value()] = HmacSha256(
        run.record.link_secret, fmt::format("edge {} of epoch {}", edge.id.value(), epoch));
    if (edge.relays.empty()) continue;
    v1::RelayWays& ways = (*assign.mutable_edge_ways())[edge.id.value()];
    for (std::string& way :
         WaysThrough(edge.relays, run.record.link_secret,
                     fmt::format("edge {} of epoch {}", edge.id.value(), epoch))) {
      ways.add_ways(std::move(way));
    }
  }
  const uint32_t replicas = ReplicasOf(assignment);
  for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
    if (assignment.start_step == 0 || manifest.step() != assignment.start_step) continue;
    for (v1::CheckpointFile& file :
         FilesOfCell(manifest, assignment.cells[stage.place], replicas)) {
      *assign.add_resume_files() = std::move(file);
    }
  }
  Send(worker, std::move(command));
}

}  // namespace longhaul::coordinator
