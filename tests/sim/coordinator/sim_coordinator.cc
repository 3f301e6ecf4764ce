#include "tests/sim/coordinator/sim_coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "run/stored/stored_checkpoint.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr int64_t kWallStart = 1'700'000'000'000;
constexpr absl::Duration kShortestWait = absl::Milliseconds(5);

}  // namespace

SimCoordinator::SimCoordinator(World* world, SimStore* store, Checkers* checkers,
                               StateOptions options)
    : world_(world), store_(store), checkers_(checkers), options_(std::move(options)) {}

SimCoordinator::SimCoordinator(World* world, Checkers* checkers, StateOptions options,
                               SeatHooks hooks)
    : world_(world),
      store_(nullptr),
      checkers_(checkers),
      options_(std::move(options)),
      seat_(std::move(hooks)),
      last_session_(seat_->first_number),
      last_request_(seat_->first_number) {}

void SimCoordinator::Start() {
  if (running()) return;
  ++process_;
  world_->timeline.Note("the coordinator starts, process {}", process_);
  store_->Reopen();
  // As each process has its own: numbers of checks are made of it.
  options_.reach_secret = fmt::format("process {}", process_);
  options_.lead = {.term = process_, .tenure = Tenure(fmt::format("{:<16}", process_))};
  Begin(*store_);
}

void SimCoordinator::Lead(const SimStore& store, const coordinator::Lead& lead, bool checked) {
  ++process_;
  checked_ = checked;
  if (checked) checkers_->Restarted();
  options_.reach_secret = lead.tenure.value();
  options_.lead = lead;
  Begin(store);
}

void SimCoordinator::Begin(const SimStore& store) {
  committing_ = false;
  state_ =
      std::make_unique<State>(options_, store.LoadRuns(), store.NextEventSequence(), LocalNow());
  stalled_until_ = MonoTime();
  busy_until_ = world_->timeline.now();
  tick_is_near_ = false;
  ScheduleTick(absl::ZeroDuration());
}

void SimCoordinator::Crash(bool silent) {
  if (!running()) return;
  world_->timeline.Note("the coordinator dies{}", silent ? " with its machine" : "");
  state_.reset();
  ++process_;
  events_.clear();
  if (!seat_) {
    last_session_ = last_request_ = 0;
    checkers_->Restarted();
  }
  sessions_.clear();
  for (const auto& accepted : std::exchange(accepted_, {})) {
    if (const auto connection = accepted.lock()) connection->CoordinatorDied(silent);
  }
  FailCalls();
}

void SimCoordinator::FailCalls() {
  for (auto& [id, done] : std::exchange(calls_, {})) {
    world_->timeline.After(absl::Milliseconds(10), [done = std::move(done)] { done(nullptr); });
  }
}

void SimCoordinator::Beat() {
  v1::WorkerCommand beat;
  beat.mutable_leader_beat();
  for (const auto& [id, connection] : sessions_) SendTo(connection.get(), beat);
}

void SimCoordinator::Die(bool silent) {
  if (seat_) {
    seat_->die(silent);
  } else {
    Crash(silent);
  }
}

MonoTime SimCoordinator::LocalNow() const {
  return world_->timeline.now() + -lost_time_;
}

void SimCoordinator::SendTo(Connection* connection, v1::WorkerCommand message) {
  message.set_term(options_.lead.term);
  message.set_tenure(options_.lead.tenure.value());
  if (seat_) message.set_change(seat_->committed());
  connection->Down(std::move(message));
}

bool SimCoordinator::TakeCopy(const std::string& worker, const std::string& sha256) {
  if (!running()) return false;
  world_->copies.insert(sha256);
  Post(event::CopyStored{WorkerId(worker), sha256});
  return true;
}

void SimCoordinator::Stall(absl::Duration length) {
  if (!running() || stalled_until_ > world_->timeline.now()) return;
  world_->timeline.Note("the coordinator is stopped for {}", absl::FormatDuration(length));
  stalled_until_ = world_->timeline.now() + length;
}

void SimCoordinator::Arrive(absl::Duration delay, std::function<void()> action) {
  world_->timeline.After(delay, [this, process = process_, action = std::move(action)] {
    if (!running() || process != process_) return;
    // When the process goes on, its timers may be faster than its network threads.
    const MonoTime hears_from = stalled_until_ + absl::Milliseconds(20);
    const MonoTime now = world_->timeline.now();
    if (stalled_until_ != MonoTime() && hears_from > now) {
      Arrive(hears_from - now, action);
    } else {
      action();
    }
  });
}

std::shared_ptr<Connection> SimCoordinator::Accept(Connection::WorkerEnd end) {
  if (!running()) return nullptr;
  const auto id = std::make_shared<SessionId>();
  const auto self = std::make_shared<std::weak_ptr<Connection>>();
  auto connection = std::make_shared<Connection>(
      world_, std::move(end),
      Connection::CoordinatorEnd{.message =
                                     [this, id, self](const v1::WorkerMessage& message) {
                                       Arrive(absl::ZeroDuration(), [this, id, self, message] {
                                         if (message.has_hello()) {
                                           const auto stream = self->lock();
                                           if (!stream || *id != SessionId()) return;  // said twice
                                           if (seat_ && !seat_->admits(message.hello())) {
                                             stream->Close();
                                             return;
                                           }
                                           *id = SessionId(++last_session_);
                                           sessions_[*id] = stream;
                                           if (checked_) checkers_->Joined(*id, message.hello());
                                           Post(event::WorkerJoined{*id, message.hello()});
                                         } else if (*id != SessionId()) {
                                           Post(event::WorkerSaid{*id, message});
                                         }
                                       });
                                     },
                                 .ended =
                                     [this, id](const std::string& why) {
                                       Arrive(absl::ZeroDuration(), [this, id, why] {
                                         if (*id != SessionId()) Post(event::WorkerLeft{*id, why});
                                       });
                                     }});
  *self = connection;
  accepted_.push_back(connection);
  return connection;
}

void SimCoordinator::Ask(const std::function<Event(RequestId)>& make, Done done) {
  world_->timeline.After(world_->random.Between(absl::Milliseconds(1), absl::Milliseconds(50)),
                         [this, make, done = std::move(done)] {
                           if (!running()) {
                             done(nullptr);
                             return;
                           }
                           const RequestId id(++last_request_);
                           calls_[id] = done;
                           if (checked_) checkers_->Asked(id);
                           Arrive(absl::ZeroDuration(), [this, make, id] { Post(make(id)); });
                         });
}

void SimCoordinator::Post(Event event) {
  events_.push_back(std::move(event));
  if (!std::exchange(tick_is_near_, true)) {
    ScheduleTick(world_->random.Between(absl::ZeroDuration(), absl::Milliseconds(5)));
  }
}

void SimCoordinator::ScheduleTick(absl::Duration delay) {
  const uint64_t number = ++ticks_scheduled_;
  world_->timeline.After(delay, [this, process = process_, number] {
    if (!running() || process != process_ || number != ticks_scheduled_) return;
    if (committing_) return;  // CarryOut goes on
    const MonoTime now = world_->timeline.now();
    const MonoTime free = std::max(stalled_until_, busy_until_);
    if (free > now) {
      ScheduleTick(free - now);
    } else {
      Tick();
    }
  });
}

void SimCoordinator::Tick() {
  Random& random = world_->random;
  const int64_t unix_ms =
      kWallStart + absl::ToInt64Milliseconds(world_->timeline.elapsed() + wall_offset_);
  tick_is_near_ = false;
  std::vector<SessionId> left;
  for (const Event& event : events_) {
    if (const auto* leaving = std::get_if<event::WorkerLeft>(&event)) {
      left.push_back(leaving->session);
    }
    if (checked_) checkers_->Sees(event);
  }
  TickResult result = state_->Tick(std::exchange(events_, {}), LocalNow(), unix_ms);
  // A death at any point of writing and of carrying out what was written.
  uint64_t survives = UINT64_MAX;
  if (random.Chance(world_->faults.crash_at_write)) {
    survives = random.Below(result.commands.size() + 2);
  }
  if (survives-- == 0) {
    Die(random.Chance(0.3));
    return;
  }
  if (!seat_) {
    store_->Apply(result.writes);
    checkers_->Stored(result.writes);
    CarryOut(result, left, survives);
  } else if (result.writes.empty()) {
    CarryOut(result, left, survives);
  } else {
    committing_ = true;
    std::vector<Write> writes = std::move(result.writes);
    seat_->commit(std::move(writes),
                  [this, process = process_, result = std::move(result), left, survives] {
                    if (!running() || process != process_) return;
                    committing_ = false;
                    CarryOut(result, left, survives);
                  });
  }
}

void SimCoordinator::CarryOut(const TickResult& result, const std::vector<SessionId>& left,
                              uint64_t survives) {
  Random& random = world_->random;
  for (const Command& command : result.commands) {
    if (survives-- == 0) {
      Die(random.Chance(0.3));
      return;
    }
    if (checked_) checkers_->Executes(command);
    Execute(command);
  }
  for (const SessionId session : left) sessions_.erase(session);
  if (random.Chance(world_->faults.slow_store)) {
    busy_until_ = world_->timeline.now() + random.Between(absl::ZeroDuration(), absl::Seconds(2));
  }
  if (!events_.empty()) {
    tick_is_near_ = true;
    ScheduleTick(absl::ZeroDuration());
  } else if (result.wake_at) {
    ScheduleTick(std::max(*result.wake_at - LocalNow(), kShortestWait));
  }
}

void SimCoordinator::Execute(const Command& command) {
  if (const auto* to = std::get_if<command::ToWorker>(&command)) {
    const auto session = sessions_.find(to->session);
    if (session == sessions_.end()) return;
    SendTo(session->second.get(), to->message);
  } else if (const auto* close = std::get_if<command::CloseSession>(&command)) {
    const auto session = sessions_.find(close->session);
    if (session != sessions_.end()) session->second->Close();
  } else if (const auto* prepare = std::get_if<command::PrepareData>(&command)) {
    const bool fails = world_->random.Chance(world_->faults.data_failure);
    Arrive(world_->random.Between(absl::Milliseconds(20), absl::Seconds(3)),
           [this, run = prepare->run, fails] {
             event::DataPrepared prepared{run, SmallData()};
             if (fails) prepared.data = absl::ResourceExhaustedError("no space left on the device");
             Post(std::move(prepared));
           });
  } else if (const auto* plan = std::get_if<command::ComputePlan>(&command)) {
    Arrive(world_->random.Between(absl::Milliseconds(1), absl::Seconds(3)), [this, asked = *plan] {
      Post(event::PlanComputed{asked.id, MakePlan(asked.request)});
    });
  } else if (const auto* retune = std::get_if<command::ComputeRetune>(&command)) {
    Arrive(world_->random.Between(absl::Milliseconds(1), absl::Seconds(3)),
           [this, asked = *retune] {
             Post(event::RetuneComputed{asked.id, AnyRetune(asked.spec, asked.plan)});
           });
  } else if (const auto* look = std::get_if<command::CheckCopies>(&command); look && look->folder) {
    Arrive(world_->random.Between(absl::Milliseconds(10), absl::Seconds(3)),
           [this, look = *look] { Post(LookAt(look)); });
  } else if (const auto* describe = std::get_if<command::StoreCheckpoint>(&command)) {
    Describe(*describe);
  } else if (const auto* trim = std::get_if<command::TrimFolder>(&command)) {
    InTurn(trim->run, [this, trim = *trim] { Trim(trim); });
  } else if (const auto* check = std::get_if<command::CheckCopies>(&command)) {
    Arrive(world_->random.Between(absl::Milliseconds(10), absl::Seconds(3)),
           [this, check = *check] {
             event::CopiesChecked checked{check.check, {}};
             for (const v1::CheckpointFile& file : check.files) {
               const bool there = world_->copies.contains(file.sha256());
               checked.problems.emplace_back(there ? "" : "it is missing");
             }
             Post(std::move(checked));
           });
  } else if (const auto* hook = std::get_if<command::RunHook>(&command)) {
    const bool ok = world_->random.Chance(0.7);
    Arrive(world_->random.Between(absl::Milliseconds(10), absl::Seconds(60)),
           [this, run = hook->run, step = hook->step, ok] {
             Post(event::HookEnded{.run = run, .step = step, .ok = ok, .how = "ended"});
           });
  } else if (const auto* drop = std::get_if<command::DropCopies>(&command)) {
    for (const std::string& sha256 : drop->sha256) world_->copies.erase(sha256);
  } else if (const auto* checkpoints =
                 std::get_if<command::Reply<v1::CheckpointsReply>>(&command)) {
    Answer(checkpoints->request, command);
  } else if (const auto* trace = std::get_if<command::Reply<v1::TraceReply>>(&command)) {
    Answer(trace->request, command);
  } else if (const auto* samples = std::get_if<command::Reply<v1::SampleReply>>(&command)) {
    Answer(samples->request, command);
  } else if (const auto* submit = std::get_if<command::Reply<v1::SubmitReply>>(&command)) {
    Answer(submit->request, command);
  } else if (const auto* planned = std::get_if<command::Reply<v1::PlanReply>>(&command)) {
    Answer(planned->request, command);
  } else if (const auto* stop = std::get_if<command::Reply<v1::StopReply>>(&command)) {
    Answer(stop->request, command);
  } else if (const auto* replicas = std::get_if<command::Reply<v1::ReplicasReply>>(&command)) {
    Answer(replicas->request, command);
  } else if (const auto* garbage = std::get_if<command::CollectGarbage>(&command)) {
    Answer(garbage->request, command);
  }
}

// Jobs on a run's folder are done in their order. A job that has begun may outlive the process.
void SimCoordinator::InTurn(const RunId& run, const std::function<void()>& job) {
  MonoTime& free = folder_free_[run];
  free = std::max(free, world_->timeline.now()) +
         world_->random.Between(absl::Milliseconds(10), absl::Seconds(3));
  world_->timeline.After(free - world_->timeline.now(), job);
}

// Sees names and sizes of objects, not their contents.
event::CopiesChecked SimCoordinator::LookAt(const command::CheckCopies& look) {
  event::CopiesChecked checked{look.check, {}};
  const bool away = world_->StoreIsAway();
  for (const v1::CheckpointFile& file : look.files) {
    const bool there = world_->objects.contains(look.folder->address() + file.name());
    checked.problems.emplace_back(away ? "nobody reaches the store" : there ? "" : "it is missing");
    checked.unreadable.push_back(away);
  }
  return checked;
}

void SimCoordinator::Describe(const command::StoreCheckpoint& describe) {
  InTurn(describe.run, [this, describe, process = process_] {
    const std::string& folder = describe.folder.address();
    std::string problem, hashes;
    for (const v1::CheckpointFile& file : describe.checkpoint.manifest().files()) {
      if (!world_->objects.contains(folder + file.name())) problem = "a file is missing";
      hashes += file.sha256();
    }
    if (world_->StoreIsAway()) problem = "nobody reaches the store";
    if (problem.empty()) world_->objects[folder + "checkpoint.json"] = hashes;
    if (process != process_) return;
    Arrive(absl::ZeroDuration(),
           [this, run = describe.run, manifest = describe.checkpoint.manifest(), problem] {
             Post(event::CheckpointStored{run, manifest.epoch(), manifest.step(), problem});
           });
  });
}

void SimCoordinator::Trim(const command::TrimFolder& trim) {
  if (world_->StoreIsAway()) return;
  std::erase_if(world_->objects, [&](const auto& object) {
    if (!object.first.starts_with(trim.address)) return false;
    const std::string path = object.first.substr(trim.address.size());
    const std::optional<uint64_t> step = stored::StepOf(path.substr(0, path.find('/')));
    const bool is_outdated =
        step && !trim.kept.empty() && *step < *trim.kept.rbegin() && !trim.kept.contains(*step);
    return is_outdated || (step && trim.dropped.contains(*step));
  });
}

void SimCoordinator::Answer(RequestId request, const Command& reply) {
  const auto call = calls_.extract(request);
  if (call.empty()) return;
  world_->timeline.After(world_->random.Between(absl::Milliseconds(1), absl::Milliseconds(50)),
                         [done = call.mapped(), reply] { done(&reply); });
}

}  // namespace longhaul::coordinator::sim
