#include "coordinator/state/sessions/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/epochs.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

constexpr uint32_t kProtocolMin = 9, kProtocolMax = 9;
constexpr size_t kMaxHelloText = 256;
// Workers that left are listed until this many of them are known.
constexpr size_t kMaxGoneWorkers = 256;
constexpr absl::Duration kClockTolerance = absl::Minutes(1);
constexpr size_t kMaxReplaced = 16;

bool IsPlainText(const std::string& text) {
  return !text.empty() && text.size() <= kMaxHelloText &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

// Why the process before the one that says this hello is gone.
std::string WhyStartedAnew(const v1::Hello& hello) {
  if (hello.restarted_for() == v1::WORKER_FAULT_NONE) return "it was started anew";
  return fmt::format("it restarted itself: it {}", Quoted(hello.restart_cause()));
}

}  // namespace

std::optional<std::string> Sessions::RefusalOf(const v1::Hello& hello) const {
  if (hello.protocol_min() > kProtocolMax || hello.protocol_max() < kProtocolMin ||
      hello.protocol_min() > hello.protocol_max()) {
    return fmt::format(
        "this coordinator (version {}) speaks protocol versions {} to {}, worker {} (version {}) "
        "speaks {} to {}; install the same version on both",
        ledger_.options().version, kProtocolMin, kProtocolMax, hello.name(), hello.version(),
        hello.protocol_min(), hello.protocol_max());
  }
  if (!IsPlainText(hello.worker_id()) || !IsPlainText(hello.incarnation()) ||
      !IsPlainText(hello.name())) {
    return fmt::format(
        "a worker's hello needs an id, an incarnation and a name of 1 to {} printable characters "
        "without spaces; it came with '{}', '{}' and '{}'",
        kMaxHelloText, hello.worker_id(), hello.incarnation(), hello.name());
  }
  if (IsFolder(hello.worker_id())) {
    return fmt::format("'{}' is the form of an address and cannot be the id of a worker",
                       hello.worker_id());
  }
  return std::nullopt;
}

void Sessions::On(event::WorkerJoined& joined) {
  if (ledger_.WorkerOf(joined.session) != nullptr) return;  // said twice
  const v1::Hello& hello = joined.hello;
  if (const std::optional<std::string> refusal = RefusalOf(hello)) {
    Refuse(joined.session, *refusal);
    return;
  }
  const WorkerId id(hello.worker_id());
  const Incarnation incarnation(hello.incarnation());
  Worker& worker = ledger_.workers()[id];
  if (std::ranges::find(worker.replaced, incarnation) != worker.replaced.end()) {
    RefuseTwin(worker, joined);
    return;
  }
  const bool replaces = worker.session && worker.incarnation == incarnation;
  if (worker.incarnation != incarnation && hello.restarted_for() == v1::WORKER_FAULT_DEVICE_LOST) {
    health_.NoteFault(nullptr, id, worker.incarnation, HealthBook::Fault::kDeviceLost);
  }
  if (worker.session) {
    ledger_.Do(
        command::CloseSession{*worker.session, "a newer session of this worker took its place"});
    if (replaces) {
      ledger_.Disconnect(worker);
    } else {
      Lose(worker, WhyStartedAnew(hello), /*for_good=*/true);
    }
  }
  const bool is_new = Renew(worker, joined);
  ForgetOldWorkers();
  SendWelcome(worker);
  ledger_.ListChanged();
  ledger_.Log(nullptr, "worker", "worker {} {}{}", ledger_.Label(worker),
              replaces ? "opened a new session" : "joined",
              hello.host().empty() ? "" : " from " + hello.host());
  NoteClock(worker, is_new);
  NoteSeenChange(worker);
  Attach(worker);
  links_.Come(worker);
  if (!worker.hello.has_leaving()) return;
  departures_.On(worker, worker.hello.leaving());
  planning_.OnLeaving(worker);
}

bool Sessions::Renew(Worker& worker, const event::WorkerJoined& joined) {
  const v1::Hello& hello = joined.hello;
  const WorkerId id(hello.worker_id());
  const Incarnation incarnation(hello.incarnation());
  const bool is_new = worker.incarnation != incarnation;
  // Also where its session had ended: the old process may come back.
  if (is_new && !worker.incarnation.value().empty()) {
    worker.replaced.push_back(worker.incarnation);
    if (worker.replaced.size() > kMaxReplaced) worker.replaced.pop_front();
  }
  const bool is_elsewhere =
      is_new || FromProto(worker.hello.endpoints()) != FromProto(hello.endpoints());
  if (is_elsewhere) {
    links_.Forget(id);
    planning_.ForgetLinksOf(worker);
  }
  if (is_new) {
    worker.layers.reset();
    worker.restarts = false;
    worker.leaves_at.reset();
    worker.at_hand.Clear();
  }
  worker.id = id;
  worker.incarnation = incarnation;
  worker.hello = hello;
  worker.resident = hello.resident();
  ++worker.sessions;
  worker.times_for.reset();
  worker.may_leave = false;
  worker.last_heard = ledger_.now();
  ledger_.Connect(worker, joined.session);
  timers_.Begin(joined.session);
  return is_new;
}

void Sessions::SendWelcome(const Worker& worker) {
  v1::WorkerCommand command;
  v1::Welcome& welcome = *command.mutable_welcome();
  welcome.set_protocol(std::min(worker.hello.protocol_max(), kProtocolMax));
  welcome.set_coordinator_version(ledger_.options().version);
  welcome.set_heartbeat_seconds(absl::ToDoubleSeconds(ledger_.options().heartbeat_interval));
  ledger_.Send(worker, std::move(command));
}

void Sessions::NoteClock(Worker& worker, bool is_new) {
  worker.clock_ahead = worker.hello.unix_ms() == 0 ? absl::ZeroDuration()
                                                   : absl::Milliseconds(worker.hello.unix_ms()) -
                                                         absl::Milliseconds(ledger_.unix_ms());
  if (!is_new || absl::AbsDuration(worker.clock_ahead) < kClockTolerance) return;
  ledger_.Log(nullptr, "worker",
              "the clock of worker {} is {} {} the coordinator's; training does not depend on "
              "it, but the times of its log lines are wrong by that; set the clocks (NTP)",
              ledger_.Label(worker),
              longhaul::FormatDuration(absl::AbsDuration(worker.clock_ahead)),
              worker.clock_ahead > absl::ZeroDuration() ? "ahead of" : "behind");
}

// Workers remember the newest change that their leader has named. Records that end before it are
// not the newest.
void Sessions::NoteSeenChange(const Worker& worker) {
  const StateOptions& options = ledger_.options();
  const bool of_another = worker.hello.tenure() != options.lead.tenure.value();
  if (options.lead.tenure.value().empty() || !of_another ||
      worker.hello.change() <= options.newest_change || std::exchange(said_put_back_, true)) {
    return;
  }
  ledger_.Log(nullptr, "worker",
              "worker {} has seen change {}, and these records ended with change {} when this "
              "coordinator began to lead: they were put back from an older copy, or the disk lost "
              "its newest writes; what is missing is lost",
              ledger_.Label(worker), worker.hello.change(), options.newest_change);
}

// A process that comes back after a newer one of its identity is a twin, because a worker that was
// started anew has another incarnation. Let in, each of the two would throw the other out for ever.
void Sessions::RefuseTwin(const Worker& worker, const event::WorkerJoined& joined) {
  const std::string refusal = fmt::format(
      "two workers have the identity {}: this one{} and worker {}{}, which is newer. Each needs a "
      "--state-dir of its own; where one was copied, delete worker-id in it",
      worker.id.value(), joined.hello.host().empty() ? "" : " on " + joined.hello.host(),
      ledger_.Label(worker), worker.hello.host().empty() ? "" : " on " + worker.hello.host());
  Refuse(joined.session, refusal);
}

void Sessions::Refuse(SessionId session, const std::string& refusal) {
  v1::WorkerCommand command;
  command.mutable_reject()->set_reason(refusal);
  command.mutable_reject()->set_fatal(true);
  ledger_.Do(command::ToWorker{session, std::move(command)});
  ledger_.Do(command::CloseSession{session, refusal});
  ledger_.Log(nullptr, "worker", "a worker was refused: " + refusal);
}

void Sessions::Attach(Worker& worker) {
  const v1::Hello hello = worker.hello;
  const RunId said(hello.run_id());
  if (Run* run = ledger_.FindRun(said)) NoteEpoch(*run, Epoch(hello.epoch()));
  bool matches = hello.run_id().empty();
  Run* stage_of = nullptr;
  for (Run* run : ledger_.Active()) {
    // A recovering run reserves its workers itself, at the end of the tick (recovery/recovery.h).
    if (!IsActive(run->record.state) || run->record.state == RunState::kRecovering) continue;
    if (Draft* draft = planning_.Find(run->record.id)) {
      if (draft->Find(worker.id, worker.incarnation) != nullptr) {
        planning_.Attach(worker, *draft);
      }
      continue;
    }
    if (StageRecord* stage = ledger_.StageOf(*run, worker)) {
      stage_of = run;
      const bool same = said == run->record.id && hello.epoch() == run->record.epoch.value() &&
                        Stamp(hello.stamp()) == run->assignment().stamp() &&
                        FromProto(hello.cell()) == stage->id;
      matches = matches || same;
      continue;
    }
    for (StageRecord& stage : run->stages) {
      if (stage.worker != worker.id || stage.HasFinished()) continue;
      stages_.OnLost(*run, stage, WhyStartedAnew(hello));
      break;
    }
  }
  const bool is_of_job = planning_.AttachToJobs(worker, said);
  if (!matches && !is_of_job) {
    v1::WorkerCommand abort = ledger_.CommandFor(said, Epoch(hello.epoch()));
    abort.set_stamp(hello.stamp());
    abort.mutable_abort()->set_reason(
        "the coordinator knows this run as ended, or with another assignment, or not at all");
    ledger_.Send(worker, std::move(abort));
    worker.hello.clear_run_id();
  }
  if (stage_of != nullptr) stages_.Attach(worker, *stage_of, *ledger_.StageOf(*stage_of, worker));
  copies_.KeepAtCoordinator(worker, shards_.Repeat(worker));
  samples_.Repeat(worker);
}

void Sessions::On(event::WorkerLeft& left) {
  if (Worker* worker = ledger_.WorkerOf(left.session)) Lose(*worker, left.why, left.for_good);
}

void Sessions::Lose(Worker& worker, const std::string& why, bool for_good) {
  ledger_.Count(FaultKind::kSessionLost);
  ledger_.Log(nullptr, "worker", "worker {} left: {}", ledger_.Label(worker), why);
  ledger_.ListChanged();
  const std::string label = ledger_.Label(worker);
  ledger_.Disconnect(worker);
  links_.Leave(worker.id);
  const std::optional<RunId> held = std::exchange(worker.held, std::nullopt);
  Run* run = held ? ledger_.FindRun(*held) : nullptr;
  if (held && planning_.Find(*held) != nullptr) {
    planning_.Lose(*held, label, why);
  } else if (StageRecord* stage = run == nullptr ? nullptr : ledger_.StageOf(*run, worker);
             stage != nullptr && HasStages(run->record.state)) {
    if (for_good || worker.may_leave) {
      stages_.OnLost(*run, *stage, why);
    } else {
      stages_.Detach(*run, *stage, why);
    }
  }
  shards_.Lose(worker, why);
}

void Sessions::ForgetOldWorkers() {
  const auto gone = [](const auto& entry) { return !entry.second.session; };
  if (static_cast<size_t>(std::count_if(ledger_.workers().begin(), ledger_.workers().end(),
                                        gone)) <= kMaxGoneWorkers) {
    return;
  }
  auto oldest = ledger_.workers().end();
  for (auto it = ledger_.workers().begin(); it != ledger_.workers().end(); ++it) {
    if (!gone(*it)) continue;
    if (oldest == ledger_.workers().end() || it->second.last_heard < oldest->second.last_heard)
      oldest = it;
  }
  links_.Forget(oldest->first);
  health_.Forget(oldest->first);
  ledger_.workers().erase(oldest);
}

void Sessions::CheckTimers() {
  for (Worker* worker : timers_.Silent()) {
    const std::string why =
        fmt::format("no sign of life for {:g} s", absl::ToDoubleSeconds(timers_.LimitOf(*worker)));
    ledger_.Do(command::CloseSession{*worker->session, why});
    Lose(*worker, why);
  }
}

}  // namespace longhaul::coordinator
