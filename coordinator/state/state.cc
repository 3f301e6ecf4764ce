#include "coordinator/state/state.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "coordinator/state/invariants.h"
#include "coordinator/state/ledger/computations.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/link_troubles.h"
#include "coordinator/state/life/stages.h"
#include "coordinator/state/life/standstill.h"
#include "coordinator/state/life/steps.h"
#include "coordinator/state/life/tuning.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/planning/queue.h"
#include "coordinator/state/planning/relay_scopes.h"
#include "coordinator/state/planning/worker_choice.h"
#include "coordinator/state/queries/garbage.h"
#include "coordinator/state/queries/requests.h"
#include "coordinator/state/queries/samples.h"
#include "coordinator/state/queries/traces.h"
#include "coordinator/state/recovery/crews.h"
#include "coordinator/state/recovery/departures.h"
#include "coordinator/state/recovery/recovery.h"
#include "coordinator/state/recovery/replicas.h"
#include "coordinator/state/sessions/messages.h"
#include "coordinator/state/sessions/sessions.h"
#include "coordinator/state/shards/checkpoint_list.h"
#include "coordinator/state/shards/commits.h"
#include "coordinator/state/shards/copies.h"
#include "coordinator/state/shards/hooks.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/shards/stored.h"
#include "coordinator/state/verify/audits.h"
#include "coordinator/state/verify/verdicts.h"
#include "coordinator/state/verify/verification.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/orders.h"
#include "coordinator/state/workers/spares.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

namespace {

// Up to so many workers and runs the invariants are checked in each tick.
constexpr size_t kCheckedInEachTick = 256;

}  // namespace

// A component is given those that it uses, which stand above it.
struct State::Components {
  Ledger ledger;
  Moves moves{ledger};
  Computations computations{ledger};

  Health health{ledger};
  WorkerLinks links{ledger};
  Orders orders{ledger, links};
  Spares spares{ledger, health, links, orders};

  Failures failures{ledger, moves};
  LinkTroubles troubles{ledger};
  Tuning tuning{ledger, computations};
  Steps steps{ledger, failures, tuning};
  Standstill standstill{ledger, failures, troubles, steps};
  Stages stages{ledger, moves, failures, health, orders, troubles, standstill, tuning};

  Shards shards{ledger, links};
  Copies copies{ledger, links, spares, shards};
  Stored stored_copies{ledger, shards, copies};
  Hooks hooks{ledger, shards};
  Commits commits{ledger, failures, health, copies, hooks};
  CheckpointList checkpoint_list{ledger, shards};

  WorkerChoice choice{ledger, health, links};
  Planning planning{ledger, moves, failures, links, orders, shards, computations};
  Queue queue{ledger, moves, failures, links, choice, planning};
  RelayScopes relay_scopes{ledger, planning, shards};

  Crews crews{ledger, health, links, failures};
  Recovery recovery{ledger, moves, failures, health, spares, shards, stages, tuning, crews};
  Replicas replicas{ledger, moves, failures, spares, crews};
  Departures departures{ledger, moves, failures, steps, shards, copies, crews};

  Verdicts verdicts{ledger, failures, steps, shards, health};
  Verification verification{ledger, verdicts};
  Audits audits{ledger, spares, steps, shards, copies, commits, verdicts};

  Traces traces{ledger};
  Samples samples{ledger};
  Garbage garbage;
  Requests requests{ledger};
  Views views{{ledger, health, links, spares, troubles, steps, shards, planning, requests}};

  Sessions sessions{ledger, health, links, stages, planning, shards, copies, samples, departures};
  Messages messages{ledger,
                    {health, links, spares, troubles, tuning, steps, standstill, stages, shards,
                     commits, planning, traces, samples, departures, verification, audits}};

  bool restarted = false;
  uint64_t unchecked_ticks = 0;  // since the invariants were checked last

  Components(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence,
             MonoTime now)
      : ledger(options, next_event_sequence, now),
        garbage(ledger, moves, shards, planning, queue, std::move(stored.unreadable)) {
    // Drafts are given up before tuning begins, and orders go out when all have heard of the move.
    for (MoveListener* listener : std::initializer_list<MoveListener*>{
             &planning, &shards, &tuning, &steps, &standstill, &stages, &failures, &troubles,
             &copies, &stored_copies, &hooks, &commits, &recovery, &verification, &audits, &orders,
             &samples}) {
      moves.Add(listener);
    }
    shards.WhenDone(ShardCheck::Purpose::kResume,
                    [this](Run& run, const ShardCheck& /*check*/, const std::string& failure) {
                      AfterResumeCheck(run, failure);
                    });
    for (RunRecord& record : stored.runs) Load(std::move(record), stored);
    requests.Load(std::move(stored.answered));
  }

  void Load(RunRecord record, const StoredRuns& stored) {
    Run& run = ledger.Load(std::move(record));
    const auto rows = stored.steps.find(run.record.id);
    if (rows != stored.steps.end()) steps.Load(run, rows->second);
  }

  // Whoever goes on from a checkpoint waits for the checks of its shards.
  void AfterResumeCheck(Run& run, const std::string& failure) {
    if (run.record.state != RunState::kRecovering) {
      planning.OnShards(run.record.id, failure);
    } else if (!failure.empty()) {
      recovery.OnMoveFailed(run, failure);
    }
  }

  void On(event::WorkerJoined& event) { sessions.On(event); }
  void On(event::WorkerSaid& event) { messages.On(event); }
  void On(event::WorkerLeft& event) { sessions.On(event); }
  void On(event::Submitted& event) {
    if (requests.Begin(event)) queue.On(event);
  }
  void On(event::PlanAsked& event) { queue.On(event); }
  void On(event::StopAsked& event) {
    if (requests.Begin(event)) stages.On(event);
  }
  void On(event::DataPrepared& event) { planning.On(event); }
  void On(event::CheckpointsAsked& event) { checkpoint_list.On(event); }
  void On(event::CopiesChecked& event) { shards.On(event); }
  void On(event::TraceAsked& event) { traces.On(event); }
  void On(event::SamplesAsked& event) { samples.On(event); }
  void On(event::PlanComputed& event) { planning.On(event); }
  void On(event::RetuneComputed& event) { tuning.On(event); }
  void On(event::ReplicasAsked& event) {
    if (requests.Begin(event)) replicas.On(event);
  }
  void On(event::RemoveAsked& event) {
    if (requests.Begin(event)) garbage.On(event);
  }
  void On(event::GarbageAsked& event) { garbage.On(event); }
  void On(event::CopyStored& event) { shards.On(event); }
  void On(event::CheckpointStored& event) { stored_copies.On(event); }
  void On(event::HookEnded& event) { hooks.On(event); }

  void CheckTimers() {
    sessions.CheckTimers();
    shards.CheckTimers();
    traces.CheckTimers();
    samples.CheckTimers();
    planning.CheckProbes();
    links.CheckTimers();
    for (Run* run : ledger.Active()) stages.CheckTimers(*run);
    planning.CheckTimers();
  }

  // A check looks at all workers and runs. Where there are hundreds, one of several ticks checks,
  // so that a tick's time does not grow with what it does not touch.
  void CheckInvariantsNowAndThen() {
    const size_t all = ledger.workers().size() + ledger.runs().size();
    if (++unchecked_ticks <= all / kCheckedInEachTick) return;
    unchecked_ticks = 0;
    CheckInvariants({ledger, links, spares, failures, stages, tuning, planning, queue});
  }

  MonoTime NextWake() const {
    MonoTime wake =
        std::min({sessions.NextWake(), shards.NextWake(), traces.NextWake(), samples.NextWake(),
                  planning.NextWake(), links.NextWake(), queue.NextWake(), health.NextWake(),
                  stored_copies.NextWake(), audits.NextWake()});
    for (const Run* run : ledger.Active()) {
      wake = std::min({wake, stages.NextWake(*run), failures.NextWake(*run)});
    }
    return wake;
  }
};

State::State(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence,
             MonoTime now)
    : components_(
          std::make_unique<Components>(options, std::move(stored), next_event_sequence, now)) {}

State::~State() = default;

TickResult State::Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms) {
  Components& c = *components_;
  c.ledger.BeginTick(now, unix_ms);
  if (!std::exchange(c.restarted, true)) {
    c.garbage.LogUnreadable();
    c.recovery.Restart();
  }
  for (Event& event : events) {
    std::visit([&c](auto& one) { c.On(one); }, event);
  }
  c.CheckTimers();
  c.planning.Advance();
  c.queue.SubmitHeld();
  c.recovery.Advance();
  c.queue.Advance();
  c.spares.Advance();
  c.replicas.Advance();
  c.departures.Advance();
  c.copies.Advance();
  c.audits.Advance();
  c.stored_copies.Advance();
  c.hooks.Advance();
  c.queue.Answer();
  c.relay_scopes.Advance();
  c.requests.NoteAnswers();
  TickResult result = c.ledger.EndTick(c.NextWake());
  c.CheckInvariantsNowAndThen();
  return result;
}

const Views& State::views() const {
  return components_->views;
}

}  // namespace longhaul::coordinator
