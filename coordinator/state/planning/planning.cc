#include "coordinator/state/planning/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "coordinator/state/layer_times.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/planning/pipeline_order.h"
#include "coordinator/state/text.h"
#include "planner/copy_interval.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

// After that a worker times its layers anew: others beside it may have come or gone.
constexpr absl::Duration kLayerTimesHold = absl::Minutes(10);

// What a draft waits for.
std::string_view WhatIsUnderWay(const Draft& draft) {
  if (draft.plan) return "shards of the checkpoint were on their way";
  if (draft.computation) return "the plan was made";
  if (draft.probes.HasBegun()) return "its layers and links were timed";
  if (!std::ranges::all_of(draft.workers, [](const auto& one) { return one.times.has_value(); })) {
    return "its layers were timed";
  }
  if (!draft.data) return "the text was prepared";
  return draft.awaits_reach ? "workers tried to reach each other" : "the checkpoint was checked";
}

}  // namespace

Draft Planning::NewDraft(const RunId& id, Epoch epoch, const RunSpec& spec,
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
  draft.began = ledger_.now();
  draft.measure_until = ledger_.now() + ledger_.options().measure_timeout;
  draft.reach_until = links_.PatientUntil();
  for (Worker* worker : workers) {
    worker->held = id;
    draft.workers.push_back({worker->id, worker->incarnation, std::nullopt});
  }
  if (candidates.choose) return draft;  // its survey says which links are measured
  std::vector<ProbeEdge> edges;
  for (const Edge& edge : EdgesFor(spec, workers)) {
    const ProbeEdge one{edge.id, WorkerAt(spec, workers, edge.from).id,
                        WorkerAt(spec, workers, edge.to).id, edge.kind};
    // The tied edge of two stages joins workers that another edge joins.
    const bool known = std::ranges::any_of(edges, [&](const ProbeEdge& other) {
      return other.from == one.from && other.to == one.to;
    });
    if (!known) edges.push_back(one);
  }
  draft.probes = ProbeRounds(std::move(edges));
  return draft;
}

void Planning::Begin(Draft& draft) {
  ledger_.Do(command::PrepareData{draft.run, draft.files, draft.spec.data.tokenizer,
                                  draft.spec.validation.share, draft.spec.data.list_sha256,
                                  draft.spec.model.context});
  ReuseLayerTimes(draft);
  for (const Draft::Candidate& candidate : draft.workers) {
    if (!candidate.times) {
      orders_.SendMeasure(*ledger_.FindWorker(candidate.id), draft.run, draft.epoch, draft.spec);
    }
  }
  if (draft.resume_step == 0) return;
  const Run& run = *ledger_.FindRun(draft.run);
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, draft.resume_step);
  if (manifest != nullptr) shards_.Check(run, *manifest, ShardCheck::Purpose::kResume);
}

void Planning::ReuseLayerTimes(Draft& draft) {
  const Run* run = ledger_.FindRun(draft.run);
  if (run == nullptr || draft.epoch.value() == 1 || draft.spec.replay) return;
  std::vector<std::string> names;
  absl::Duration oldest;
  for (Draft::Candidate& candidate : draft.workers) {
    const Worker& worker = *ledger_.FindWorker(candidate.id);
    if (!worker.layers || !HaveSameLayerTimes(worker.layers->spec, draft.spec)) continue;
    const absl::Duration age = ledger_.now() - worker.layers->at;
    if (age > kLayerTimesHold) continue;
    // A worker that is still ending its last epoch would miss the measurement of its links. One
    // that says which stage it keeps has ended it, and one that is timed waits for that end.
    if (draft.spec.links.measure && worker.resident.run_id() != draft.run.value()) continue;
    candidate.times = worker.layers->times;
    names.push_back(ledger_.Label(worker));
    oldest = std::max(oldest, age);
  }
  if (names.empty()) return;
  ledger_.Log(run, "note",
              "these layers were timed within the last {} on {}: those times are used again",
              longhaul::FormatDuration(oldest), Join(names));
}

Draft* Planning::Find(const RunId& id) {
  if (const auto it = jobs_.find(id); it != jobs_.end()) return &it->second.draft;
  const auto found = drafts_.find(id);
  return found == drafts_.end() ? nullptr : &found->second;
}

void Planning::On(event::DataPrepared& prepared) {
  Draft* draft = Find(prepared.run);
  if (draft == nullptr || draft->data) return;  // stopped meanwhile, or said twice
  if (!prepared.data.ok()) {
    Fail(prepared.run,
         fmt::format("the data could not be prepared: {}", Message(prepared.data.status())));
    return;
  }
  // Data sets are checked where they are submitted: validation may have files of its own.
  const Status size = draft->spec.data.sets.empty()
                          ? CheckDataSize(draft->spec, prepared.data->tokens)
                          : absl::OkStatus();
  if (!size.ok()) {
    Fail(prepared.run, std::string(Message(size)));
    return;
  }
  const Run* run = ledger_.FindRun(prepared.run);
  if (run != nullptr && run->record.data && draft->resume_step > 0 &&
      run->record.data->token_file_sha256 != prepared.data->token_file_sha256) {
    Fail(prepared.run,
         fmt::format("the data set's hash is {} and was {} when the run began; a resumed run "
                     "needs the same data",
                     prepared.data->token_file_sha256, run->record.data->token_file_sha256));
    return;
  }
  draft->data = *std::move(prepared.data);
  Advance(prepared.run);
}

void Planning::OnMessage(Worker& worker, Draft& draft, const v1::WorkerMessage& message) {
  if (message.has_error()) {
    const std::string cause = fmt::format("worker {} could not time its layers: {}",
                                          ledger_.Label(worker), Quoted(message.error().message()));
    if (message.error().restarts_for() == v1::WORKER_FAULT_NONE) {
      if (Drop(draft, worker, cause)) return;
      Fail(draft.run, cause);
    } else {
      Interrupt(draft.run, cause);
    }
    return;
  }
  if (message.has_link_probed()) {
    if (probing_.OnAnswer(worker, draft, message.link_probed())) Advance(draft.run);
    return;
  }
  if (!message.has_layer_times()) return;
  Draft::Candidate* candidate = draft.Find(worker.id, worker.incarnation);
  if (candidate->times) return;
  if (!IsPlausible(message.layer_times())) {
    Fail(draft.run, fmt::format("worker {} reported layer times that cannot be (negative, not "
                                "finite or above an hour)",
                                ledger_.Label(worker)));
    return;
  }
  candidate->times = message.layer_times();
  if (!draft.spec.replay) {  // a replay has the times of another machine
    worker.layers = {draft.spec, message.layer_times(), ledger_.now()};
  }
  if (Run* run = ledger_.FindRun(draft.run)) {
    ledger_.Changed(*run);
    NoteLayerTimes(*run, draft, worker);
  }
  Advance(draft.run);
}

void Planning::NoteLayerTimes(const Run& run, const Draft& draft, const Worker& last) {
  if (draft.spec.replay) return;
  for (const Draft::Candidate& candidate : draft.workers) {
    if (!candidate.times) return;
  }
  const v1::LayerTimes& times = last.layers->times;
  std::string why;
  if (times.seconds_taken() > 0)
    why = fmt::format(", took {}", FormatSeconds(times.seconds_taken()));
  if (times.seconds_waited() >= 0.1) {
    why += fmt::format(" and waited {} for others on its GPU before",
                       FormatSeconds(times.seconds_waited()));
  }
  ledger_.Log(&run, "note", "layers are timed, within {}: worker {} was the last{}",
              longhaul::FormatDuration(ledger_.now() - draft.began), ledger_.Label(last), why);
}

bool Planning::IsComplete(const Draft& draft) const {
  if (!draft.data) return false;
  for (const Draft::Candidate& candidate : draft.workers) {
    if (!candidate.times) return false;
  }
  return !shards_.book().IsCheckingToResume(draft.run);
}

bool Planning::Drop(Draft& draft, Worker& worker, const std::string& why) {
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
  ledger_.SendAbort(worker, draft.run, draft.epoch, "the plan does without this worker");
  ledger_.Log(ledger_.FindRun(draft.run), "note", "the plan does without {}: {}",
              ledger_.Label(worker), why);
  Advance(draft.run);
  return true;
}

namespace {

// Copies go to other machines where there are some, unless the run file says how often.
void SettleMachines(const Ledger& ledger, const Draft& draft, PlanRequest* request) {
  std::set<std::string> machines;
  for (const Draft::Candidate& candidate : draft.workers) {
    const Worker* worker = ledger.FindWorker(candidate.id);
    if (worker != nullptr && !worker->hello.machine().empty()) {
      machines.insert(worker->hello.machine());
    }
  }
  RecoverySpec& recovery = request->spec.recovery;
  const bool unsaid = recovery.every == 0U && recovery.every_between_hosts;
  if (unsaid && machines.size() > 1 && !request->spec.replay) recovery.every = std::nullopt;
  const std::string& own = ledger.options().machine;
  request->on_other_machines =
      !own.empty() && std::ranges::any_of(machines, [&](const auto& one) { return one != own; });
}

}  // namespace

std::string Planning::RiskOf(const Draft& draft) const {
  PlanRequest request;
  request.spec = draft.spec;
  SettleMachines(ledger_, draft, &request);
  if (!request.on_other_machines) return "";
  return LostDiskWarning(request.spec, request.spec.recovery.every.value_or(1));
}

PlanRequest Planning::RequestOf(const Draft& draft) const {
  PlanRequest request;
  request.run = draft.run;
  request.epoch = draft.epoch;
  request.spec = draft.spec;
  request.data = *draft.data;
  const Run* run = ledger_.FindRun(draft.run);
  const v1::CheckpointManifest* manifest =
      run == nullptr ? nullptr : FindCheckpoint(run->record, draft.resume_step);
  if (draft.resume_step > 0 && manifest != nullptr) {
    request.resume.emplace().step = manifest->step();
    for (const v1::Cell& cell : manifest->cells()) {
      request.resume->cells.push_back(FromProto(cell));
    }
  }
  request.workers = probing_.CandidatesOf(draft);
  SettleMachines(ledger_, draft, &request);
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

void Planning::Advance(const RunId& id) {
  Draft* draft = Find(id);
  if (draft == nullptr) return;
  draft->awaits_reach = false;
  if (!IsComplete(*draft)) return;
  draft->awaits_reach = ledger_.now() < draft->reach_until && IsTryingReach(*draft);
  if (draft->awaits_reach) return;
  Run* run = jobs_.contains(id) ? nullptr : ledger_.FindRun(id);
  const bool resumes = run != nullptr && draft->resume_step > 0;
  if (resumes && !SettleOnCheckpoint(*run, *draft)) return;
  // A plan that relies on guesses is made again with what they turn out to be.
  if (draft->plan && probing_.SurveyGoesOn(*draft)) draft->plan.reset();
  if (!probing_.AreMeasured(*draft)) return;
  // The checkpoint may have turned out to be damaged while the plan was computed.
  if (draft->plan && draft->plan->assignment.start_step != draft->resume_step) draft->plan.reset();
  if (!draft->plan) {
    if (!draft->computation) {
      draft->computation =
          computations_.Ask(command::ComputePlan{.id = {}, .request = RequestOf(*draft)});
    }
  } else if (run == nullptr) {
    v1::PlanReply reply;
    *reply.mutable_plan() = ToProto(*draft->plan);
    EndJob(id, std::move(reply));
  } else if (!resumes || ShardsAreInPlace(*run, *draft->plan)) {
    Adopt(*run, *draft, *std::move(draft->plan));
  }
}

void Planning::DropPlan(Draft& draft) {
  draft.awaits_reach = true;  // so that it goes on at the end of this tick
  computations_.Cancel(draft.computation);
  draft.plan.reset();
}

void Planning::Advance() {
  std::vector<RunId> waiting;
  EachDraft([&](const Draft& draft) {
    if (draft.awaits_reach) waiting.push_back(draft.run);
  });
  for (const RunId& id : waiting) Advance(id);
}

void Planning::Fail(const RunId& id, const std::string& sentence) {
  if (jobs_.contains(id)) {
    EndJob(id, absl::FailedPreconditionError(sentence));
  } else {
    failures_.Fail(*ledger_.FindRun(id), sentence);
  }
}

void Planning::EndJob(const RunId& id, StatusOr<v1::PlanReply> reply) {
  const auto it = jobs_.find(id);
  computations_.Cancel(it->second.draft.computation);
  for (auto& [worker_id, worker] : ledger_.workers()) {
    if (worker.held != id) continue;
    if (!reply.ok() && worker.session) {
      ledger_.SendAbort(worker, id, it->second.draft.epoch, "the plan is not wanted any more");
    }
    worker.held.reset();
  }
  ledger_.Do(command::Reply<v1::PlanReply>{it->second.request, std::move(reply)});
  jobs_.erase(it);
}

bool Planning::IsTryingReach(const Draft& draft) const {
  if (draft.candidates_for) {
    if (draft.survey.HasBegun()) return false;
    for (const Draft::Candidate& one : draft.workers) {
      for (const Draft::Candidate& other : draft.workers) {
        if (one.id < other.id &&
            links_.IsTrying(draft.spec, *ledger_.FindWorker(one.id), *ledger_.FindWorker(other.id),
                            EdgeKind::kActivations)) {
          return true;
        }
      }
    }
    return false;
  }
  return std::ranges::any_of(draft.probes.edges(), [&](const ProbeEdge& edge) {
    return links_.IsTrying(draft.spec, *ledger_.FindWorker(edge.from), *ledger_.FindWorker(edge.to),
                           edge.kind);
  });
}

void Planning::On(event::PlanComputed& computed) {
  std::optional<RunId> waiting;
  EachDraft([&](const Draft& one) {
    if (one.computation == computed.id) waiting = one.run;
  });
  if (!waiting) return;
  const RunId id = *waiting;
  Draft& draft = *Find(id);
  draft.computation.reset();
  if (!computed.plan.ok()) {
    Fail(id, std::string(Message(computed.plan.status())));
    return;
  }
  draft.plan = *std::move(computed.plan);
  Advance(id);
}

void Planning::Attach(Worker& worker, Draft& draft) {
  worker.held = draft.run;
  if (!draft.Find(worker.id, worker.incarnation)->times) {
    orders_.SendMeasure(worker, draft.run, draft.epoch, draft.spec);
  }
  probing_.Repeat(worker, draft);
}

bool Planning::AttachToJobs(Worker& worker, const RunId& said) {
  bool matches = false;
  for (auto& [id, job] : jobs_) {
    if (job.draft.Find(worker.id, worker.incarnation) == nullptr) continue;
    matches = matches || said == id;
    Attach(worker, job.draft);
  }
  return matches;
}

void Planning::ForgetLinksOf(const Worker& worker) {
  // The draft knows where the worker was, and how fast its links were there.
  Draft* draft = worker.held ? Find(*worker.held) : nullptr;
  if (draft == nullptr) return;
  DropPlan(*draft);
  draft->probes.Restart();
  draft->survey = LinkSurvey();
}

void Planning::Lose(const RunId& id, const std::string& label, const std::string& why) {
  Interrupt(id,
            fmt::format("worker {} was lost while {}: {}", label, WhatIsUnderWay(*Find(id)), why));
}

void Planning::OnLeaving(Worker& worker) {
  if (!worker.held || Find(*worker.held) == nullptr) return;
  const RunId held = *std::exchange(worker.held, std::nullopt);
  Lose(held, ledger_.Label(worker), "it is leaving");
}

void Planning::OnShards(const RunId& id, const std::string& failure) {
  if (failure.empty()) {
    Advance(id);
  } else {
    Interrupt(id, failure);
  }
}

void Planning::Add(Draft draft) {
  const RunId id = draft.run;
  drafts_.insert_or_assign(id, std::move(draft));
}

void Planning::BeginJob(RequestId request, Draft draft) {
  Job& job = jobs_[draft.run];
  job = {request, std::move(draft)};
  Begin(job.draft);
}

void Planning::EachDraft(const std::function<void(const Draft&)>& visit) const {
  for (const auto& [id, job] : jobs_) visit(job.draft);
  for (const auto& [id, draft] : drafts_) visit(draft);
}

void Planning::Interrupt(const RunId& id, const std::string& cause) {
  if (jobs_.contains(id)) {
    Fail(id, cause);
  } else {
    failures_.InterruptPlanning(*ledger_.FindRun(id), cause);
  }
}

void Planning::CheckProbes() {
  std::vector<RunId> late;
  EachDraft([&](const Draft& draft) {
    if (ledger_.now() >= draft.probes.NextWake()) late.push_back(draft.run);
  });
  for (const RunId& id : late) {
    probing_.GiveUp(*Find(id));
    Advance(id);
  }
}

void Planning::CheckTimers() {
  std::vector<RunId> late;
  for (const auto& [id, job] : jobs_) {
    if (ledger_.now() >= job.draft.measure_until) late.push_back(id);
  }
  for (const Run* run : ledger_.Active()) {
    const auto draft = drafts_.find(run->record.id);
    if (draft == drafts_.end() || ledger_.now() < draft->second.measure_until) continue;
    late.push_back(draft->first);
  }
  for (const RunId& id : late) CheckTimer(id);
}

void Planning::CheckTimer(const RunId& id) {
  const Draft* draft = Find(id);
  if (draft == nullptr) return;
  std::vector<Worker*> late;
  for (const Draft::Candidate& candidate : draft->workers) {
    Worker* worker = ledger_.FindWorker(candidate.id);
    if (!candidate.times && worker != nullptr) late.push_back(worker);
  }
  std::erase_if(late, [&](Worker* worker) {
    Draft* still = Find(id);
    return still != nullptr && Drop(*still, *worker, "its layer times have not come");
  });
  Draft* left = Find(id);
  if (left == nullptr) return;
  if (late.empty()) {  // only the data set is missing; that takes as long as it takes
    left->measure_until = MonoTime::max();
    return;
  }
  std::vector<std::string> names;
  for (const Worker* worker : late) names.push_back(ledger_.Label(*worker));
  Interrupt(id, fmt::format("layer times were asked for {:g} s ago and have not come from {}; "
                            "look at the log of that worker",
                            absl::ToDoubleSeconds(ledger_.options().measure_timeout), Join(names)));
}

MonoTime Planning::NextWake() const {
  MonoTime wake = MonoTime::max();
  EachDraft([&](const Draft& draft) {
    wake = std::min({wake, draft.measure_until, draft.probes.NextWake()});
    if (draft.awaits_reach) wake = std::min(wake, draft.reach_until);
  });
  return wake;
}

void Planning::OnMove(Run& run, const Transition& row) {
  if (row.to == RunState::kPlanning) return;
  const auto found = drafts_.find(run.record.id);
  if (found == drafts_.end()) return;
  computations_.Cancel(found->second.computation);
  drafts_.erase(found);
}

void Planning::Act(Run& run, Action action) {
  if (action == Action::kMeasure) Begin(drafts_.at(run.record.id));
}

void Planning::CheckInvariants(const Run& run) const {
  const RunId& id = run.record.id;
  const bool has_draft = drafts_.contains(id);
  LH_CHECK(has_draft == (run.record.state == RunState::kPlanning), "run {} is {} and {} a draft",
           id.value(), ToString(run.record.state), has_draft ? "has" : "lacks");
  LH_CHECK(!jobs_.contains(id), "{} is a run and a request to plan", id.value());
}

}  // namespace longhaul::coordinator
