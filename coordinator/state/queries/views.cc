#include "coordinator/state/queries/views.h"

#include <algorithm>
#include <map>

#include "coordinator/state/layer_times.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/life/link_troubles.h"
#include "coordinator/state/life/steps.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/queries/link_stall.h"
#include "coordinator/state/queries/requests.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/spares.h"
#include "coordinator/state/workers/worker_links.h"
#include "planner/copy_interval.h"
#include "planner/replicas.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

constexpr size_t kMedianOver = 10;

double MedianStepSeconds(const std::deque<v1::StepRecord>& recent) {
  std::vector<double> seconds;
  const size_t count = std::min(recent.size(), kMedianOver);
  for (size_t i = recent.size() - count; i < recent.size(); ++i) {
    seconds.push_back(recent[i].seconds());
  }
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double Share(double part, double whole) {
  if (!(whole > 0) || !(part > 0)) return 0;
  return std::min(part / whole, 1.0);
}

std::string_view StateOf(const Draft& draft, const Draft::Candidate& candidate) {
  if (draft.computation) return "planning";
  return candidate.times && !draft.probes.IsWaiting() ? "ready" : "measuring";
}

std::string_view StateOf(const Run& run, const StageRecord& stage) {
  if (stage.HasFinished()) return "finished";
  if (!stage.IsAttached()) return HasStages(run.record.state) ? "detached" : "lost";
  if (run.record.state == RunState::kRecovering) return "waiting";
  if (run.record.state == RunState::kPreparing) return stage.IsReady() ? "ready" : "preparing";
  return "running";
}

constexpr std::string_view kHealthy = "healthy", kSuspect = "suspect", kLost = "lost";

std::string_view LinkState(const LinkTroubles& troubles, const Run& run, EdgeId edge) {
  const LinkTrouble* trouble = troubles.Find(run, edge);
  if (trouble == nullptr) return kHealthy;
  const bool lost =
      std::ranges::any_of(trouble->stages, [](const auto& one) { return one.second; });
  return lost ? kLost : kSuspect;
}

// The worst state of the links of a cell.
std::string_view LinkQuality(const LinkTroubles& troubles, const Run& run,
                             const StageRecord& stage) {
  std::string_view worst = kHealthy;
  for (const Edge& edge : run.assignment().edges) {
    if (edge.from != stage.id && edge.to != stage.id) continue;
    const std::string_view state = LinkState(troubles, run, edge.id);
    if (state == kLost || worst == kHealthy) worst = state;
  }
  return worst;
}

// The rate that the plan counts with: the slowest of the sender's interface, the link and the
// receiver's.
double RateOf(const Run& run, const Flow& flow, const StageRecord& from, const StageRecord& to) {
  const std::vector<CellEstimate>& cells = run.record.plan->cells;
  double rate = 0;
  for (const double known :
       {from.place < cells.size() ? cells[from.place].egress_bits_per_second : 0,
        to.place < cells.size() ? cells[to.place].ingress_bits_per_second : 0,
        flow.bits_per_second}) {
    if (known > 0) rate = rate > 0 ? std::min(rate, known) : known;
  }
  return rate;
}

// Every direction whose sender has reported a step.
std::vector<DirectionInUse> DirectionsInUse(const Steps& steps, const Run& run) {
  std::vector<DirectionInUse> directions;
  for (const StageRecord& stage : run.stages) {
    const v1::StepReport* last = steps.LastOf(run, stage);
    if (last == nullptr) continue;
    for (const v1::LinkUse& use : last->links()) {
      const Edge* edge = run.assignment().Find(EdgeId(use.edge()));
      const StageRecord* peer = edge == nullptr ? nullptr : run.Find(edge->PeerOf(stage.id));
      if (peer == nullptr) continue;
      directions.push_back({.from = stage.place, .to = peer->place, .sender = last, .use = &use});
    }
  }
  return directions;
}

// In the order of the cells.
std::vector<InterfaceUse> InterfacesOf(const Steps& steps, const Run& run) {
  std::vector<double> egress, ingress;
  for (const CellEstimate& cell : run.record.plan->cells) {
    egress.push_back(cell.egress_bits_per_second);
    ingress.push_back(cell.ingress_bits_per_second);
  }
  return UseOfInterfaces(run.stages.size(), DirectionsInUse(steps, run), egress, ingress);
}

}  // namespace

namespace {

// What a run that has not ended risks.
void AddWarnings(const Ledger& ledger, const Run& run, v1::RunStatus* status) {
  const std::string& own = ledger.options().machine;
  if (HasEnded(run.record.state) || !run.record.plan || own.empty()) return;
  const bool elsewhere = std::ranges::any_of(run.stages, [&](const StageRecord& stage) {
    const Worker* worker = ledger.FindWorker(stage.worker);
    return worker != nullptr && !worker->hello.machine().empty() && worker->hello.machine() != own;
  });
  if (!elsewhere) return;
  const std::string risk = LostDiskWarning(run.record.spec, run.assignment().copy_every);
  if (!risk.empty()) status->add_warnings(risk);
}

void AddSpare(const Spares& spares, const Worker& worker, const Run& run, v1::RunStatus* status) {
  if (spares.IsSpareOf(worker, run)) status->add_spares(worker.hello.name());
}

}  // namespace

Views::RunList Views::ListRuns(const Wanted& wanted) const {
  std::vector<const Run*> runs, ended;
  for (const auto& [id, run] : of_.ledger.runs()) {
    const bool has_ended = HasEnded(run.record.state);
    if (has_ended && run.record.ended_unix_ms < wanted.ended_since_unix_ms) continue;
    if (wanted.owner && run.record.owner != *wanted.owner) continue;
    (has_ended ? ended : runs).push_back(&run);
  }
  const auto is_newer = [](const Run* a, const Run* b) { return a->order > b->order; };
  std::ranges::sort(ended, is_newer);
  const size_t most = std::min<size_t>(wanted.most_ended.value_or(ended.size()), ended.size());
  RunList list;
  list.ended_left_out = ended.size() - most;
  runs.insert(runs.end(), ended.begin(), ended.begin() + static_cast<ptrdiff_t>(most));
  std::ranges::sort(runs, is_newer);
  std::vector<v1::RunStatus>& statuses = list.runs;
  statuses.reserve(runs.size());
  std::map<RunId, v1::RunStatus*> by_id;
  for (const Run* run : runs) {
    const bool has_ended = HasEnded(run->record.state);
    statuses.push_back(Render(*run, !has_ended || wanted.links_of_ended));
    if (!has_ended) by_id[run->record.id] = &statuses.back();
  }
  // The workers once for all runs, because each run by itself would look at all of them.
  for (const Worker* worker : of_.ledger.connected()) {
    const auto holder = worker->held ? by_id.find(*worker->held) : by_id.end();
    if (holder != by_id.end()) {
      AddSpare(of_.spares, *worker, of_.ledger.runs().at(*worker->held), holder->second);
    }
  }
  return list;
}

StatusOr<v1::RunStatus> Views::RunOf(std::string_view id_or_name,
                                     std::optional<std::string_view> owner) const {
  LH_ASSIGN_OR_RETURN(const Run* const run, of_.ledger.RunCalled(id_or_name, owner));
  v1::RunStatus status = Render(*run, /*with_links=*/true);
  for (const Worker* worker : of_.ledger.connected()) {
    AddSpare(of_.spares, *worker, *run, &status);
  }
  if (run->record.plan) *status.mutable_plan() = ToProto(*run->record.plan);
  status.mutable_samples()->Add(run->record.samples.begin(), run->record.samples.end());
  return status;
}

StatusOr<v1::SubmitRequest> Views::SubmissionOf(std::string_view id_or_name,
                                                std::optional<std::string_view> owner) const {
  LH_ASSIGN_OR_RETURN(const Run* const run, of_.ledger.RunCalled(id_or_name, owner));
  v1::SubmitRequest submission;
  submission.set_run_yaml(ToYaml(run->record.spec));
  submission.set_file_name(run->record.spec.name + ".yaml");
  submission.mutable_data_files()->Add(run->record.data_files.begin(),
                                       run->record.data_files.end());
  return submission;
}

// Without the run's spares.
v1::RunStatus Views::Render(const Run& run, bool with_links) const {
  const RunRecord& record = run.record;
  v1::RunStatus status;
  status.set_run_id(record.id.value());
  status.set_name(record.spec.name);
  status.set_state(std::string(ToString(record.state)));
  status.set_reason(record.state == RunState::kQueued ? run.waiting : record.reason);
  status.set_epoch(record.epoch.value());
  status.set_step(record.step);
  status.set_steps(record.spec.train.steps);
  if (record.spec.replay) status.set_replay_source(record.spec.replay->source);
  status.set_schedule(std::string(ToString(record.spec.pipeline.schedule)));
  status.set_owner(record.owner);
  status.set_submitted_unix_ms(record.submitted_unix_ms);
  status.set_started_unix_ms(record.started_unix_ms);
  status.set_ended_unix_ms(record.ended_unix_ms);
  status.set_sequence(run.sequence);
  if (!record.checkpoints.empty()) {
    status.set_checkpoint_step(record.checkpoints.back().step());
    status.set_checkpoint_unix_ms(record.checkpoints.back().committed_unix_ms());
  }
  status.set_copied_step(NewestSafe(record));
  if (const v1::CheckpointManifest* safe = FindCheckpoint(record, status.copied_step())) {
    status.set_copied_unix_ms(safe->committed_unix_ms());
  }
  const std::deque<v1::StepRecord>& recent = of_.steps.Recent(run);
  if (!recent.empty()) {
    status.set_loss(recent.back().loss());
    status.set_gradient_norm(recent.back().gradient_norm());
  }
  if (const std::optional<v1::ValidationReport>& validation = of_.steps.Validation(run)) {
    status.set_has_validation(true);
    status.set_validation_loss(validation->loss());
    status.set_validation_step(validation->step());
    if (validation->has_clean_loss()) {
      status.set_clean_validation_loss(validation->clean_loss());
    }
  }
  status.set_replicas_wanted(record.ReplicasWanted());
  if (record.plan) {
    status.set_replicas(ReplicasOf(run.assignment()));
    status.set_replicas_reason(of_.spares.WhyFewerReplicas(run));
  }
  const double seconds = MedianStepSeconds(recent);
  status.set_step_seconds(seconds);
  if (seconds > 0) {
    const uint32_t replicas =
        record.plan ? ReplicasOf(record.plan->assignment) : record.spec.replicas.count;
    status.set_tokens_per_second(static_cast<double>(replicas * record.spec.TokensOfReplica()) /
                                 seconds);
    if (!HasEnded(record.state) && record.spec.train.steps > record.step) {
      status.set_seconds_left(static_cast<double>(record.spec.train.steps - record.step) * seconds);
    }
  }
  AddWarnings(of_.ledger, run, &status);
  for (const std::string& name : run.workers_lost) status.add_workers_lost(name);
  if (const Draft* draft = of_.planning.Find(record.id)) {
    RenderDraft(*draft, &status);
  } else if (record.plan) {
    const std::vector<InterfaceUse> interfaces = InterfacesOf(of_.steps, run);
    RenderStages(run, interfaces, &status);
    if (with_links) RenderLinks(run, interfaces, &status);
  }
  return status;
}

void Views::RenderDraft(const Draft& draft, v1::RunStatus* status) const {
  uint32_t index = 0;
  for (const Draft::Candidate& candidate : draft.workers) {
    v1::StageStatus& one = *status->add_stages();
    one.set_stage(index++);
    one.set_worker_id(candidate.id.value());
    const Worker* worker = of_.ledger.FindWorker(candidate.id);
    if (worker != nullptr) one.set_worker_name(worker->hello.name());
    one.set_connected(worker != nullptr && worker->session.has_value());
    one.set_state(std::string(StateOf(draft, candidate)));
  }
}

void Views::RenderStages(const Run& run, const std::vector<InterfaceUse>& interfaces,
                         v1::RunStatus* status) const {
  for (const StageRecord& stage : run.stages) {
    const Cell& cell = run.assignment().cells[stage.place];
    v1::StageStatus& one = *status->add_stages();
    one.set_stage(stage.id.stage);
    one.set_replica(stage.id.replica);
    one.set_worker_id(stage.worker.value());
    one.set_worker_name(stage.name);
    const Worker* worker = of_.ledger.FindWorker(stage.worker);
    one.set_connected(worker != nullptr && worker->session &&
                      worker->incarnation == stage.incarnation);
    one.set_state(std::string(StateOf(run, stage)));
    one.set_first_layer(cell.layers.first);
    one.set_layers(cell.layers.count);
    one.set_depth(cell.setting.depth);
    one.set_tensor_ranks(cell.group.tensor);
    one.set_expert_ranks(cell.group.expert);
    one.mutable_devices()->Add(cell.devices.begin(), cell.devices.end());
    const std::vector<CellEstimate>& estimates = run.record.plan->cells;
    if (stage.place < estimates.size()) {
      one.set_device_kind(estimates[stage.place].device_kind);
    }
    const v1::StepReport* report = of_.steps.LastOf(run, stage);
    if (report == nullptr) continue;
    const v1::StepReport& last = *report;
    one.set_step(last.step());
    one.set_compute_share(Share(last.forward_seconds() + last.backward_seconds(), last.seconds()));
    one.set_optimizer_share(Share(last.optimizer_seconds(), last.seconds()));
    one.set_codec_wait_share(Share(last.codec_wait_seconds(), last.seconds()));
    one.set_wait_input_share(Share(last.wait_input_seconds(), last.seconds()));
    one.set_wait_gradient_share(Share(last.wait_gradient_seconds(), last.seconds()));
    one.set_codec_share(Share(last.codec_seconds(), last.seconds()));
    if (last.has_expert_load()) *one.mutable_expert_load() = last.expert_load();
    if (last.has_collectives()) {
      *one.mutable_collectives() = last.collectives();
      if (last.collectives().has_seconds()) {
        one.set_collective_share(Share(last.collectives().seconds(), last.seconds()));
      }
    }
    const InterfaceUse& interface = interfaces[stage.place];
    if (interface.egress) one.set_egress_share(*interface.egress);
    if (interface.ingress) one.set_ingress_share(*interface.ingress);
  }
}

void Views::RenderLinks(const Run& run, const std::vector<InterfaceUse>& interfaces,
                        v1::RunStatus* status) const {
  for (const Edge& edge : run.assignment().edges) {
    for (const bool forward : {true, false}) {
      const StageRecord* from = run.Find(forward ? edge.from : edge.to);
      const StageRecord* to = run.Find(forward ? edge.to : edge.from);
      if (from == nullptr || to == nullptr) continue;  // a stored plan may be anything
      const Flow& flow = forward ? edge.forward : edge.backward;
      v1::LinkStatus& one = *status->add_links();
      one.set_edge(edge.id.value());
      one.set_from_worker(from->name);
      one.set_to_worker(to->name);
      one.set_direction(forward ? "forward" : "backward");
      one.set_codec(ToString(flow.codec));
      one.set_kind(std::string(ToString(edge.kind)));
      one.set_state(std::string(LinkState(of_.troubles, run, edge.id)));
      one.set_rate_bits_per_second(RateOf(run, flow, *from, *to));
      const v1::StepReport* last = of_.steps.LastOf(run, *from);
      if (last == nullptr || !(last->seconds() > 0)) continue;
      for (const v1::LinkUse& use : last->links()) {
        if (use.edge() != edge.id.value()) continue;
        one.set_goodput_bits_per_second(8.0 * static_cast<double>(use.payload_bytes_sent()) /
                                        last->seconds());
        one.set_payload_bytes(use.payload_bytes_sent());
        one.set_busy_share(Share(use.send_busy_seconds(), last->seconds()));
        one.set_waits_for(std::string(StallOf(
            {.from = from->place, .to = to->place, .sender = last, .use = &use}, interfaces)));
        if (one.rate_bits_per_second() > 0) {
          one.set_bound_share(
              Share(8.0 * static_cast<double>(use.link_bytes_sent()) / one.rate_bits_per_second(),
                    last->seconds()));
        }
      }
    }
  }
}

std::vector<v1::WorkerStatus> Views::Workers(MonoTime now) const {
  std::vector<const Worker*> workers;
  for (const auto& [id, worker] : of_.ledger.workers()) workers.push_back(&worker);
  std::sort(workers.begin(), workers.end(), NameLess());
  std::vector<v1::WorkerStatus> statuses;
  for (const Worker* worker : workers) {
    v1::WorkerStatus& one = statuses.emplace_back();
    one.set_worker_id(worker->id.value());
    one.set_name(worker->hello.name());
    one.set_incarnation(worker->incarnation.value());
    one.set_connected(worker->session.has_value());
    *one.mutable_devices() = worker->hello.devices();
    *one.mutable_endpoints() = worker->hello.endpoints();
    one.set_version(worker->hello.version());
    one.set_last_heartbeat_seconds(
        absl::ToDoubleSeconds(now - worker->last_heard - of_.ledger.asleep()));
    one.set_host(worker->hello.host());
    one.set_pid(worker->hello.pid());
    one.set_sessions(worker->sessions);
    one.set_memory_used_bytes(worker->memory_used_bytes);
    one.set_clock_ahead_seconds(absl::ToDoubleSeconds(worker->clock_ahead));
    of_.links.Render(*worker, now, &one);
    const MonoTime awake = now + -of_.ledger.asleep();
    one.set_losses(of_.health.book().Losses(worker->id, awake));
    if (const std::optional<MonoTime> until = of_.health.book().LeftOutUntil(worker->id, awake)) {
      one.set_left_out_seconds(absl::ToDoubleSeconds(*until - awake));
    }
    if (worker->leaves_at && worker->session) {
      one.set_leaves_in_seconds(std::max(0.001, absl::ToDoubleSeconds(*worker->leaves_at - awake)));
    }
    if (worker->layers) {
      v1::MeasuredLayers& layers = *one.mutable_measured_layers();
      layers.set_model(MeasuredModel(worker->layers->spec));
      *layers.mutable_times() = worker->layers->times;
      layers.set_age_seconds(absl::ToDoubleSeconds(now - worker->layers->at - of_.ledger.asleep()));
    }
    if (!worker->resident.run_id().empty()) *one.mutable_resident() = worker->resident;
    if (!worker->held) continue;
    one.set_run_id(worker->held->value());
    const auto it = of_.ledger.runs().find(*worker->held);
    if (it == of_.ledger.runs().end()) continue;
    one.set_spare(of_.spares.IsSpareOf(*worker, it->second));
    for (const StageRecord& stage : it->second.stages) {
      if (stage.worker != worker->id) continue;
      *one.mutable_cell() = ToProto(stage.id);
      one.set_link_quality(std::string(LinkQuality(of_.troubles, it->second, stage)));
    }
  }
  return statuses;
}

std::vector<v1::MeasuredLink> Views::Links(MonoTime now) const {
  return of_.links.Links(now);
}

std::vector<v1::RelayStatus> Views::Relays() const {
  return of_.links.Relays();
}

bool Views::ExpectsCopy(const std::string& sha256, uint64_t bytes,
                        const std::optional<WorkerId>& from) const {
  return of_.shards.book().ExpectsCopy(sha256, bytes, from);
}

bool Views::MovesObject(const RunId& run, const std::string& address, bool writes,
                        const std::optional<WorkerId>& from) const {
  return of_.shards.book().MovesObject(run, address, writes, from);
}

bool Views::HasCopyFor(const WorkerId& from, const std::string& sha256) const {
  return of_.shards.HasCopyFor(from, sha256);
}

Naming Views::NamedForWorker(const WorkerId& worker, const std::string& sha256) const {
  return longhaul::coordinator::NamedForWorker(of_.ledger, worker, sha256);
}

Naming Views::NamedForOwner(std::string_view owner, const std::string& sha256) const {
  return longhaul::coordinator::NamedForOwner(of_.ledger, owner, sha256);
}

StatusOr<WorkersRun> Views::RunOfWorker(const std::optional<WorkerId>& worker,
                                        const std::string& run) const {
  return longhaul::coordinator::RunOfWorker(of_.ledger, worker, run);
}

OwnNames Views::NamesOfOwner(std::string_view owner) const {
  return longhaul::coordinator::NamesOfOwner(of_.ledger, owner);
}

bool Views::KnowsCall(std::string_view owner, std::string_view id) const {
  return of_.requests.Knows(owner, id);
}

size_t Views::Connected() const {
  return of_.ledger.connected().size();
}

const FaultCounts& Views::faults() const {
  return of_.ledger.faults();
}

uint64_t Views::sequence() const {
  return of_.ledger.sequence();
}

}  // namespace longhaul::coordinator
