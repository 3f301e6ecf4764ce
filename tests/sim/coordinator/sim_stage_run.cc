// The part of SimWorker that follows worker/epoch/epoch_run.cc and the executor.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "coordinator/state/books/shard_book.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/sim/coordinator/sim_worker.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr absl::Duration kLinkLimit = absl::Seconds(30);
constexpr absl::Duration kSuspectAfter = absl::Seconds(1);
constexpr absl::Duration kPeerTimeout = absl::Seconds(10);

// Parsing takes longer than the rest of a run's simulation, and there are few different files.
const RunSpec& SpecOf(const std::string& yaml) {
  static std::map<std::string, RunSpec> known;
  const auto found = known.find(yaml);
  if (found != known.end()) return found->second;
  StatusOr<RunSpec> spec = ParseRunSpec(yaml, "run.yaml", {});
  LH_CHECK(spec.ok(), "a plan's run file cannot be read: {}", Message(spec.status()));
  return known[yaml] = *std::move(spec);
}

}  // namespace

void SimWorker::AfterInRun(absl::Duration delay, std::function<void()> action) {
  After(delay, [this, number = run_->number, action = std::move(action)] {
    if (run_ && run_->number == number) action();
  });
}

void SimWorker::BeginRun(const v1::WorkerCommand& command) {
  const v1::Assign& assign = command.assign();
  StageRun& run = run_.emplace(StageRun());
  run.key = KeyOf(command);
  run.number = ++runs_begun_;
  run.assignment = FromProto(assign.assignment());
  run.cell = FromProto(assign.cell());
  if (const Status sound = CheckAssignment(run.assignment); !sound.ok()) {
    world_->Violate("{} got an assignment that is not sound: {}", WorkerName(index_),
                    Message(sound));
  }
  run.start_step = run.step = run.assignment.start_step;
  const RunSpec& spec = SpecOf(run.assignment.run_yaml);
  run.steps = spec.train.steps;
  run.checkpoint_every = spec.checkpoint.every;
  const Cell* const cell = run.assignment.Find(run.cell);
  LH_CHECK(cell != nullptr, "an assignment without the cell that it is for");
  run.setting = cell->setting;
  if (cell->worker.value() != id()) {
    world_->Violate("{} got an assignment of {}", WorkerName(index_), cell->worker.value());
  }
  CheckRates(run.key, run.assignment);
  run.resume_files.assign(assign.resume_files().begin(), assign.resume_files().end());
  EpochTruth& epoch = truth();
  epoch.members[run.cell] = {index_, run.start_step, {}};
  run.in_epoch = true;
  for (const Edge* edge : run.edges()) {
    if (edge->dialler() != run.cell) continue;
    const Cell& peer = *run.assignment.Find(edge->dialled());
    epoch.members[run.cell].dials[peer.id] = peer.endpoints.front().addresses.front();
  }
  for (const v1::Readdress& moved : std::exchange(next_moves_, {})) Readdress(moved);
  const bool slow = world_->random.Chance(world_->faults.slow);
  const absl::Duration takes =
      world_->random.Between(absl::Milliseconds(50), absl::Seconds(slow ? 50 : 2));
  if (slow) world_->Blame(index_, takes);
  AfterInRun(takes, [this] { Prepared(); });
}

void SimWorker::Readdress(const v1::Readdress& moved) {
  if (!run_->in_epoch) return;
  const Edge* const edge = run_->assignment.Find(EdgeId(moved.edge()));
  if (edge == nullptr || edge->dialler() != run_->cell) {
    world_->Violate("{} is told where edge {} leads, which it does not dial", WorkerName(index_),
                    moved.edge());
    return;
  }
  truth().members.at(run_->cell).dials[edge->dialled()] = moved.addresses(0);
}

void SimWorker::Prepared() {
  if (run_->cancelled) return;
  if (twin_) {
    Fail("expected to take one of the 0 devices that this worker offers");
    return;
  }
  if (world_->random.Chance(world_->faults.error)) {
    Fail("the model does not fit");
    return;
  }
  if (run_->start_step > 0 && run_->resume_files.empty()) {
    world_->Violate("{} of {}@{} resumes from step {} without a shard", WorkerName(index_),
                    run_->key.run, run_->key.epoch, run_->start_step);
    return;
  }
  for (const v1::CheckpointFile& file : run_->resume_files) {
    const ShardName name{run_->key.run, run_->start_step, file.stage(), file.replica()};
    const bool own = IsHeldBy(file, id());
    if (own ? disk().Find(name) == file.sha256() : world_->copies.contains(file.sha256())) continue;
    if (own ? disk().WasHarmed(name) : world_->copies_harmed.contains(file.sha256())) {
      Fail(
          fmt::format("{} of the checkpoint of step {} is damaged", file.name(), run_->start_step));
      return;
    }
    // A process that was stopped for long wakes up in an epoch of the past, whose shards may be
    // gone.
    const auto later = world_->epochs.upper_bound(run_->key);
    if (later != world_->epochs.end() && later->first.run == run_->key.run) {
      Fail("a shard is missing");
      return;
    }
    world_->Violate("{} of {}@{} resumes from step {}, whose shard of stage {} is not within reach",
                    WorkerName(index_), run_->key.run, run_->key.epoch, run_->start_step,
                    file.stage());
    return;
  }
  WaitForLinks(world_->timeline.now() + kLinkLimit);
}

void SimWorker::WaitForLinks(MonoTime until) {
  if (run_->cancelled) return;
  bool all = true;
  std::string missing;
  for (const Edge* edge : run_->edges()) {
    const CellId& peer = edge->PeerOf(run_->cell);
    const auto member = truth().members.find(peer);
    if (member != truth().members.end() && world_->CanTalk(index_, member->second.worker) &&
        world_->Finds(truth(), run_->cell, peer)) {
      continue;
    }
    all = false;
    missing = fmt::format("link to {}: nobody answers", ToString(peer));
  }
  if (all) {
    run_->ready = true;
    SayReady();
  } else if (world_->timeline.now() >= until) {
    Fail(missing);
  } else {
    AfterInRun(absl::Milliseconds(250), [this, until] { WaitForLinks(until); });
  }
}

void SimWorker::SayReady() {
  v1::WorkerMessage message;
  message.mutable_stage_ready()->set_start_step(run_->start_step);
  Say(run_->key, std::move(message));
}

void SimWorker::HandleStart(const v1::Start&) {
  if (!run_->ready || run_->started || run_->cancelled) return;
  run_->started = true;
  v1::WorkerMessage message;
  message.mutable_stage_started();
  Say(run_->key, std::move(message));
  if (run_->step == run_->steps) {  // only the word that it had finished was lost
    Finish();
  } else {
    Work();
  }
}

void SimWorker::HandleRetune(const v1::Retune& retune) {
  if (run_->retuned && run_->retuned->retune() == retune.retune()) {
    v1::WorkerMessage message;
    *message.mutable_retuned() = *run_->retuned;
    Say(run_->key, std::move(message));
  } else {
    run_->retune = retune;
  }
}

// The step of run_->step begins.
void SimWorker::RetuneIfDue() {
  for (const uint64_t request : std::exchange(run_->sample_requests, {})) {
    v1::WorkerMessage message;
    message.mutable_samples()->set_request(request);
    message.mutable_samples()->set_step(run_->step);
    message.mutable_samples()->add_samples()->set_text("text");
    Say(run_->key, std::move(message));
  }
  if (run_->retune) {
    run_->setting.depth = run_->retune->depth();
    if (run_->retune->has_activation_lead()) {
      run_->setting.activation_lead = run_->retune->activation_lead();
    }
    v1::WorkerMessage message;
    message.mutable_retuned()->set_retune(run_->retune->retune());
    message.mutable_retuned()->set_step(run_->step);
    run_->retuned = message.retuned();
    run_->retune.reset();
    Say(run_->key, std::move(message));
  }
  CheckSettings();
}

// Where a stage waits for more activations than one above it keeps in flight, both wait for ever.
void SimWorker::CheckSettings() {
  auto& settings = truth().settings;
  auto& of_step = settings[run_->step];
  of_step[run_->cell] = run_->setting;
  for (const auto& [below, lower] : of_step) {
    const Edge* edge = run_->assignment.Incoming(below, EdgeKind::kActivations);
    for (; edge != nullptr; edge = run_->assignment.Incoming(edge->from, EdgeKind::kActivations)) {
      const auto upper = of_step.find(edge->from);
      if (upper == of_step.end() || upper->second.depth >= lower.activation_lead) continue;
      world_->Violate("in step {} of {}@{} {} has depth {} and {} a lead of {}", run_->step,
                      run_->key.run, run_->key.epoch, ToString(edge->from), upper->second.depth,
                      ToString(below), lower.activation_lead);
    }
  }
  while (settings.size() > 8) settings.erase(settings.begin());
}

void SimWorker::Work() {
  if (run_->cancelled || run_->failed || run_->finished || run_->hung) return;
  if (!NeighboursAreThere()) {
    if (run_->failed) return;
  } else if (MayStep()) {
    OneStep();
    if (run_->failed || run_->step == run_->steps ||
        (truth().stop_at && run_->step >= *truth().stop_at)) {
      return;
    }
  }
  AfterInRun(world_->random.Between(absl::Milliseconds(100), absl::Milliseconds(500)),
             [this] { Work(); });
}

bool SimWorker::NeighboursAreThere() {
  const MonoTime now = world_->timeline.now();
  bool all = true;
  for (const Edge* edge : run_->edges()) {
    const CellId& peer = edge->PeerOf(run_->cell);
    if (truth().finished.contains(peer)) continue;
    const auto member = truth().members.find(peer);
    const bool gone = member == truth().members.end();
    if (!gone && world_->CanTalk(index_, member->second.worker) &&
        world_->Finds(truth(), run_->cell, peer)) {
      const auto silent = run_->silent_since.find(edge->id);
      if (silent == run_->silent_since.end()) continue;
      const bool suspect = run_->suspects.erase(edge->id) > 0;
      if (run_->lost.erase(edge->id) > 0) {
        SayLink(edge->id, "healed", now - silent->second);
      } else if (suspect) {
        SayLink(edge->id, "healthy", now - silent->second);
      }
      run_->silent_since.erase(silent);
      continue;
    }
    all = false;
    const auto [silent, first] = run_->silent_since.try_emplace(edge->id, now);
    const absl::Duration silence = now - silent->second;
    if (silence >= kSuspectAfter && run_->suspects.insert(edge->id).second) {
      SayLink(edge->id, "suspect", silence);
    }
    // A process that dies closes its connections, mostly; and a network may break one, too.
    const bool closed = gone ? !truth().left[peer] && world_->random.Chance(0.3)
                             : first && world_->random.Chance(0.3);
    if (closed && run_->lost.insert(edge->id).second) SayLink(edge->id, "lost", silence);
    if (silence >= kPeerTimeout) {
      Fail("no sign of life", edge->id);
      return false;
    }
  }
  return all;
}

bool SimWorker::FailsForEver() const {
  return world_->faults.doom && run_->key.run.starts_with(kDoomed) && run_->cell.stage == 1 &&
         run_->step > 5;
}

bool SimWorker::MayStep() const {
  if (run_->writes >= 2) return false;  // it would wait for the checkpoint writer
  const uint64_t next = run_->step + 1;
  const Edge* const above = run_->assignment.Incoming(run_->cell, EdgeKind::kActivations);
  for (const Cell& peer : run_->assignment.cells) {
    if (peer.id == run_->cell) continue;
    const auto finished = truth().finished.find(peer.id);
    const auto member = truth().members.find(peer.id);
    const uint64_t step = finished != truth().finished.end() ? finished->second
                          : member != truth().members.end()  ? member->second.step
                                                             : 0;
    // The first stage needs everybody's gradients of the step before, the others its decisions.
    // The first replica decides for all.
    const bool decides =
        above == nullptr ? peer.id < run_->cell && peer.roles.embedding : above->from == peer.id;
    if (step + 1 < next || (decides && step < next)) return false;
  }
  return true;
}

void SimWorker::OneStep() {
  Random& random = world_->random;
  const uint64_t step = ++run_->step;
  EpochTruth& epoch = truth();
  epoch.members[run_->cell].step = step;
  RetuneIfDue();
  if (random.Chance(world_->faults.error)) {
    Fail("out of memory");
    return;
  }
  if (FailsForEver()) {
    Fail(fmt::format("cannot allocate {} bytes", world_->timeline.notes()));
    return;
  }
  if (random.Chance(world_->faults.hang)) {
    run_->hung = true;
    run_->deaf = random.Chance(0.5);
    world_->timeline.Note("{} hangs in step {}", WorkerName(index_), step);
    // Until an operator looks, and kills it.
    const absl::Duration noticed = random.Between(absl::Seconds(10), absl::Seconds(90));
    const absl::Duration away = random.Between(absl::Milliseconds(10), absl::Seconds(10));
    world_->Blame(index_, noticed + away);
    AfterInRun(noticed, [this, away] {
      Crash(/*silent=*/false);
      world_->timeline.After(away, [this] { Start(); });
    });
    return;
  }
  const bool last = run_->is_last();
  // Every stage of the step sees the same.
  const bool nonfinite =
      world_->faults.nonfinite > 0 && LossOf(run_->key, step) - 1 < world_->faults.nonfinite * 0.1;
  // Each replica says a loss of its own; only runs with one are made to compute wrongly.
  if (last && !run_->assignment.HasReplicas() && random.Chance(world_->faults.miscompute)) {
    world_->timeline.Note("step {} of {}@{} is computed wrongly", step, run_->key.run,
                          run_->key.epoch);
    world_->miscomputed.insert({run_->key, step});
  }
  v1::WorkerMessage message;
  v1::StepReport& report = *message.mutable_step();
  report.set_step(step);
  report.set_seconds(0.1);
  report.set_forward_seconds(ForwardSecondsOf(run_->key, step));
  report.set_has_norm(run_->is_first());
  report.set_gradient_norm(nonfinite ? std::numeric_limits<double>::infinity() : 1);
  report.set_has_loss(last);
  report.set_loss(nonfinite ? std::numeric_limits<double>::quiet_NaN()
                            : world_->LossAt(run_->key, step));
  report.set_numerics(world_->steps_repeat ? 1 + run_->cell.stage : 0);
  report.set_first_nonfinite(nonfinite && last);
  Say(run_->key, std::move(message));
  if (nonfinite) {
    world_->timeline.Note("{}@{} is not finite at step {}", run_->key.run, run_->key.epoch, step);
    Fail("the gradient norm is not finite");
    return;
  }
  if (run_->decides() && run_->stop_requested && !epoch.stop_at) epoch.stop_at = step;
  const bool stops = epoch.stop_at && step >= *epoch.stop_at;
  if (last && run_->cell.replica == 0 && step % 5 == 0 && !stops) {
    v1::WorkerMessage validation;
    validation.mutable_validation()->set_step(step);
    validation.mutable_validation()->set_loss(world_->LossAt(run_->key, step));
    Say(run_->key, std::move(validation));
  }
  const bool ends = stops || step == run_->steps;
  const bool wanted = ends || step % run_->checkpoint_every == 0;
  const uint64_t copies = run_->assignment.copy_every;
  if (wanted || (copies > 0 && step % copies == 0)) SubmitCheckpoint(/*interim=*/!wanted);
  if (ends) {
    const MonoTime now = world_->timeline.now();
    AfterInRun(std::max(run_->writer_free - now, absl::ZeroDuration()), [this] { Finish(); });
  }
}

// The writer finishes what it was given, whatever becomes of the run; only its process's death
// stops it.
void SimWorker::SubmitCheckpoint(bool interim) {
  const MonoTime now = world_->timeline.now();
  const bool slow = world_->random.Chance(world_->faults.slow);
  const absl::Duration takes =
      world_->random.Between(absl::Milliseconds(10), absl::Seconds(slow ? 20 : 1));
  run_->writer_free = std::max(run_->writer_free, now) + takes;
  ++run_->writes;
  if (slow) world_->Blame(index_, run_->writer_free - now);
  const bool fails = world_->random.Chance(world_->faults.disk_full);
  // It is there before it is sure to stay there.
  const absl::Duration sync = takes * world_->random.Unit();
  const EpochKey key = run_->key;
  const ShardName name{key.run, run_->step, run_->cell.stage, run_->cell.replica};
  if (!fails) {
    After(run_->writer_free - now - sync,
          [this, key, name] { disk().Write(name, ShardHash(key, name)); });
  }
  After(run_->writer_free - now,
        [this, key, name, fails, interim, of_replicas = run_->assignment.HasReplicas()] {
          const bool current = run_ && run_->key == key;
          if (current) --run_->writes;
          if (!fails) {
            SyncShard(key, name, of_replicas, interim);
          } else if (current) {
            Fail("no space left on the device");
          }
        });
}

// Each replica has a file of its own, because no two have the same optimizer state.
void SimWorker::SyncShard(const EpochKey& key, const ShardName& name, bool of_replicas,
                          bool interim) {
  disk().Sync(name);
  v1::WorkerMessage message;
  *message.mutable_shard() = ShardOf(name.step, name.stage);
  message.mutable_shard()->set_interim(interim);
  v1::CheckpointFile& file = *message.mutable_shard()->mutable_files(0);
  file.set_sha256(ShardHash(key, name));
  if (of_replicas) {
    file.set_replica(name.replica);
    file.set_name(fmt::format("stage-{}.replica-{}.optim.safetensors", name.stage, name.replica));
  }
  Say(key, std::move(message));
}

void SimWorker::Finish() {
  if (run_->cancelled || run_->failed) return;
  run_->finished = true;
  truth().finished[run_->cell] = run_->step;
  v1::WorkerMessage message;
  message.mutable_finished()->set_step(run_->step);
  message.mutable_finished()->set_stopped(run_->step < run_->steps);
  world_->timeline.Note("{} finishes {} of {}@{} at step {}", WorkerName(index_),
                        ToString(run_->cell), run_->key.run, run_->key.epoch, run_->step);
  Say(run_->key, std::move(message));
}

void SimWorker::Fail(const std::string& text, std::optional<EdgeId> lost) {
  if (run_->failed || run_->cancelled) return;
  world_->timeline.Note("{} fails {} of {}@{} at step {}: {}", WorkerName(index_),
                        ToString(run_->cell), run_->key.run, run_->key.epoch, run_->step, text);
  if (!lost) world_->Blame(index_);
  v1::WorkerMessage message;
  message.mutable_error()->set_message(text);
  message.mutable_error()->set_step(run_->step);
  if (lost) message.mutable_error()->set_lost_edge(lost->value());
  Say(run_->key, std::move(message));
  run_->failed = true;
  truth().failed.insert(run_->cell);
  LeaveEpoch(/*goodbye=*/true);
  AfterInRun(world_->random.Between(absl::Milliseconds(1), absl::Seconds(2)), [this] { EndRun(); });
}

void SimWorker::EndRun() {
  LeaveEpoch(/*goodbye=*/true);
  // The checkpoint writer finishes what it was given before another run begins.
  const MonoTime now = world_->timeline.now();
  if (run_->writer_free > now) {
    AfterInRun(run_->writer_free - now, [this] { EndRun(); });
    return;
  }
  run_.reset();
  TakeNext();
}

void SimWorker::LeaveEpoch(bool goodbye) {
  if (!std::exchange(run_->in_epoch, false)) return;
  truth().members.erase(run_->cell);
  truth().left[run_->cell] = goodbye;
}

void SimWorker::SayLink(EdgeId edge, std::string_view state, absl::Duration silence) {
  v1::WorkerMessage message;
  v1::LinkEvent& link = *message.mutable_link();
  link.set_edge(edge.value());
  link.set_state(std::string(state));
  link.set_silence_seconds(absl::ToDoubleSeconds(silence));
  Say(run_->key, std::move(message));
}

}  // namespace longhaul::coordinator::sim
