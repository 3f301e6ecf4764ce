#include "coordinator/rpc/shell.h"

#include <algorithm>
#include <variant>

#include "base/file.h"
#include "base/log.h"
#include "base/overloaded.h"
#include "coordinator/store/garbage.h"

namespace longhaul::coordinator {
namespace {

// Followers hear of news at most ten times a second.
constexpr absl::Duration kNotifyInterval = absl::Milliseconds(100);
// However soon the state wants to be woken, the loop never spins.
constexpr absl::Duration kShortestWait = absl::Milliseconds(5);
// Maximum number of texts and shards that are read at once.
constexpr size_t kDiskThreads = 4;
// Maximum number of uploads that are synced at once.
constexpr size_t kUploadThreads = 2;
// Maximum number of submissions that are checked at once.
constexpr size_t kSubmitThreads = 2;
// How often the disk is looked at, and how long a write waits for room before it is tried again.
constexpr absl::Duration kDiskCheck = absl::Seconds(1);
// The loop turns at least so often.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

RunId NewRunId(const std::string& name) {
  constexpr std::string_view kDigits = "abcdefghijkmnpqrstuvwxyz23456789";  // 32, no lookalikes
  std::string id = name + "-";
  for (const char byte : RandomBytes(6)) id += kDigits[static_cast<uint8_t>(byte) % kDigits.size()];
  return RunId(id);
}

}  // namespace

StatusOr<std::unique_ptr<Shell>> Shell::Create(const StateOptions& options, Store* store,
                                               const BlobStore* blobs, const BlobStore* copies,
                                               DataPreparer preparer, Planner planner,
                                               const std::string& hooks_folder,
                                               const remote::Settings& objects,
                                               ServeScopes serve_scopes, ShellDisk disk) {
  LH_ASSIGN_OR_RETURN(StoredRuns runs, store->LoadRuns());
  for (const UnreadableRun& run : runs.unreadable) {
    LogError("run {} is set aside: {}", run.id.value(), run.problem);
  }
  LH_ASSIGN_OR_RETURN(const uint64_t next_event, store->NextEventSequence());
  auto state = std::make_unique<State>(options, std::move(runs), next_event, Now());
  return std::unique_ptr<Shell>(
      new Shell(store, blobs, copies, std::move(preparer), std::move(planner), hooks_folder,
                objects, std::move(serve_scopes), disk, options.limits, std::move(state)));
}

Shell::Shell(Store* store, const BlobStore* blobs, const BlobStore* copies, DataPreparer preparer,
             Planner planner, const std::string& hooks_folder, const remote::Settings& objects,
             ServeScopes serve_scopes, ShellDisk disk, const MemberLimits& limits,
             std::unique_ptr<State> state)
    : store_(store),
      blobs_(blobs),
      copies_(copies),
      serve_scopes_(std::move(serve_scopes)),
      disk_(disk),
      limits_(limits),
      places_(limits),
      state_(std::move(state)),
      watched_("shell"),
      // Tick at once: the state may have to act on the runs that it found in the store.
      wake_at_(Now()),
      chores_(std::move(preparer), copies, &disk_threads_,
              [this](Event event) { Post(std::move(event)); }),
      disk_threads_(kDiskThreads),
      upload_threads_(kUploadThreads),
      submit_threads_(kSubmitThreads),
      planner_(std::move(planner), [this](Event event) { Post(std::move(event)); }),
      hooks_(hooks_folder, blobs, copies, [this](Event event) { Post(std::move(event)); }),
      folders_(objects, [this](Event event) { Post(std::move(event)); }),
      thread_([this] {
        Loop();
        watched_.Rests();
      }) {
  if (disk_.room != nullptr) WatchDisk();
  CallAfter(kLeaderBeat, [this] { BeatWorkers(); });
}

Shell::~Shell() {
  Stop(Deadline::After(absl::ZeroDuration()));
}

bool Shell::Stop(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  // The loop ends first, so that no command reaches a session that is being closed.
  if (thread_.joinable()) thread_.join();
  std::unordered_map<SessionId, std::shared_ptr<SessionSink>> sessions;
  {
    const std::lock_guard lock(mutex_);
    sessions.swap(sessions_);
  }
  // Without the lock: a session that ends calls Leave, which takes it.
  for (const auto& [id, sink] : sessions) sink->Close("the coordinator is shutting down", true);
  notifier_.Shutdown();
  std::apply([](auto&... calls) { (calls.FailAll(Stopping()), ...); }, calls_);
  planner_.Stop();
  const bool hooks_ended = hooks_.Stop(deadline);
  const bool folders_ended = folders_.Stop(deadline);
  const bool synced = upload_threads_.Stop(deadline);
  const bool checked = submit_threads_.Stop(deadline);
  return disk_threads_.Stop(deadline) && synced && checked && hooks_ended && folders_ended;
}

Status Shell::Stopping() {
  return absl::UnavailableError("the coordinator is shutting down; try again when it is back");
}

Status Shell::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Shell::SetSure(const Status& sure) {
  {
    const std::lock_guard lock(sure_mutex_);
    sure_ = sure;
  }
  if (sure.ok()) return;
  // The loop may be waiting for others with the tick in hand that would answer them.
  const Status unknown = OutcomeUnknown(sure);
  std::apply([&](auto&... calls) { (calls.FailAll(unknown), ...); }, calls_);
}

Status Shell::OutcomeUnknown(const Status& unsure) {
  return Unavailable(
      "{}; whether this is stored is not known yet; ask again with the same request id. Runs go on "
      "training",
      Message(unsure));
}

Status Shell::sure() const {
  const std::lock_guard lock(sure_mutex_);
  return sure_;
}

void Shell::BeatWorkers() {
  CallAfter(kLeaderBeat, [this] { BeatWorkers(); });
  // A worker that hears nothing looks for another coordinator, which may lead by now.
  if (!sure().ok()) return;
  std::vector<std::shared_ptr<SessionSink>> sinks;
  {
    const std::lock_guard lock(mutex_);
    sinks.reserve(sessions_.size());
    for (const auto& [id, sink] : sessions_) sinks.push_back(sink);
  }
  v1::WorkerCommand beat;
  beat.mutable_leader_beat();
  for (const auto& sink : sinks) sink->Send(beat);
}

StatusOr<SessionId> Shell::Join(const std::shared_ptr<SessionSink>& sink, v1::Hello hello) {
  LH_RETURN_IF_ERROR(sure());
  const std::lock_guard lock(mutex_);
  if (stopping_) return Stopping();
  if (sessions_.size() >= kMaxSessions) {
    return ResourceExhausted(
        "this coordinator serves at most {} workers, and so many are connected", kMaxSessions);
  }
  // One lock for both: the state must hear of the session before anything that the session says.
  const SessionId session(++last_session_);
  sessions_.emplace(session, sink);
  PostLocked(event::WorkerJoined{session, std::move(hello)});
  return session;
}

void Shell::Say(SessionId session, v1::WorkerMessage message, Signature signature) {
  const absl::Duration wait = message.has_heartbeat() ? kHeartbeatWait : absl::ZeroDuration();
  Post(event::WorkerSaid{session, std::move(message), signature}, wait);
}

void Shell::Leave(SessionId session, std::string why, bool for_good) {
  Post(event::WorkerLeft{session, std::move(why), for_good});
}

void Shell::CopyStored(std::optional<WorkerId> from, std::string sha256) {
  Post(event::CopyStored{std::move(from), std::move(sha256)});
}

bool Shell::Post(Event event, absl::Duration wait) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  PostLocked(std::move(event), wait);
  return true;
}

void Shell::PostLocked(Event event, absl::Duration wait) {
  events_.push_back(std::move(event));
  const MonoTime due = Now() + wait;
  if (due >= events_due_) return;  // the loop wakes up before
  events_due_ = due;
  work_.notify_one();
}

RequestId Shell::Submit(RunSpec spec, v1::SubmitRequest request, Submitter by,
                        Done<event::Submitted> done) {
  const RunId run = NewRunId(spec.name);
  return Ask(event::Submitted{.spec = std::move(spec),
                              .submit = std::move(request),
                              .new_id = run,
                              .link_secret = RandomBytes(32),
                              .by = std::move(by)},
             std::move(done));
}

RequestId Shell::PlanRun(RunSpec spec, v1::SubmitRequest request, Done<event::PlanAsked> done) {
  const RunId run = NewRunId(spec.name);
  return Ask(event::PlanAsked{.spec = std::move(spec),
                              .submit = std::move(request),
                              .new_id = run,
                              .link_secret = RandomBytes(32)},
             std::move(done));
}

bool Shell::Drop(RequestId request) {
  return std::apply([&](auto&... calls) { return (calls.Drop(request) || ...); }, calls_);
}

ShellUse Shell::Use() const {
  ShellUse use;
  use.planner = planner_.Use();
  {
    const std::lock_guard lock(stored_mutex_);
    use.ticks = ticks_;
    use.tick_seconds = absl::ToDoubleSeconds(in_ticks_);
  }
  const std::lock_guard lock(mutex_);
  use.events_waiting = events_.size();
  use.sessions = sessions_.size();
  return use;
}

void Shell::CallAfter(absl::Duration delay, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  timers_.emplace(Now() + delay, std::move(call));
  work_.notify_one();
}

// ---- The loop ----------------------------------------------------------------------

bool Shell::WaitForWork(std::vector<Event>* events, std::vector<std::function<void()>>* due) {
  std::unique_lock lock(mutex_);
  while (true) {
    watched_.Turned();
    // Without the lock: who answers may be waiting for the disk.
    lock.unlock();
    // If another coordinator can go on at once, it shall not have to wait for this one's disk.
    watched_.SpareDiskCalls(!store_->journal().needs_sync());
    lock.lock();
    const MonoTime now = Now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      due->push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (stopping_) return false;
    const bool wake = wake_at_.has_value() && *wake_at_ <= now;
    if (events_due_ <= now || !due->empty() || wake) {
      events->swap(events_);
      events_due_ = MonoTime::max();
      return true;
    }
    MonoTime until =
        std::min({now + kLongestWait, events_due_, wake_at_.value_or(MonoTime::max())});
    if (!timers_.empty()) until = std::min(until, timers_.begin()->first);
    // Checks everything again after each wake-up, so no new timer or event is missed.
    work_.wait_until(lock, until.ToChrono());
  }
}

void Shell::Loop() {
  std::vector<Event> events;
  std::vector<std::function<void()>> due;
  std::vector<Command> commands;
  while (WaitForWork(&events, &due)) {
    for (const auto& call : due) call();
    due.clear();
    const bool wake = wake_at_.has_value() && *wake_at_ <= Now();
    if (events.empty() && !wake) continue;
    // Before the tick, so that sessions read on while it runs.
    TellTaken(events);
    std::vector<SessionId> left;
    for (const Event& event : events) {
      if (const auto* leaving = std::get_if<event::WorkerLeft>(&event)) {
        left.push_back(leaving->session);
      }
    }
    if (Status status = TickOnce(std::move(events), &commands); !status.ok()) {
      LogError("the state store refused a write, so nothing more can be done: {}", Message(status));
      const std::lock_guard lock(mutex_);
      if (stopping_) return;  // while it waited for room
      stopping_ = true;
      failure_ = std::move(status);
      return;
    }
    events.clear();
    for (Command& command : commands) Execute(std::move(command));
    commands.clear();
    // After the commands: some may still be for a session that has left.
    ForgetSessions(left);
  }
}

void Shell::TellTaken(const std::vector<Event>& events) {
  std::unordered_map<SessionId, size_t> taken;
  for (const Event& event : events) {
    if (const auto* said = std::get_if<event::WorkerSaid>(&event)) ++taken[said->session];
  }
  for (const auto& [session, messages] : taken) {
    if (const auto sink = SinkOf(session)) sink->Taken(messages);
  }
}

Status Shell::HasRoom() const {
  // Looks again: somebody may have made room this moment.
  if (disk_.room == nullptr || !disk_.room->full() || !disk_.room->Check()) return absl::OkStatus();
  return disk_.room->MayTake(1);
}

void Shell::WatchDisk() {
  disk_.room->Check();
  CallAfter(kDiskCheck, [this] { WatchDisk(); });
}

bool Shell::WaitForRoom() {
  std::unique_lock lock(mutex_);
  const MonoTime until = Now() + kDiskCheck;
  watched_.Turned();
  while (!stopping_ && Now() < until) work_.wait_until(lock, until.ToChrono());
  return !stopping_;
}

Status Shell::StoreWrites(std::vector<Write> writes, Written* written) {
  if (disk_.room != nullptr && disk_.room->full()) {
    // What is left of the disk is for what the coordinator must not forget.
    std::erase_if(
        writes, [](const Write& write) { return std::holds_alternative<write::WorkerLog>(write); });
  }
  Status status = store_->Apply(writes, written);
  if (!absl::IsResourceExhausted(status) || disk_.room == nullptr) return status;
  LogError("the disk refused a write: {}. The coordinator gives up its reserve", Message(status));
  disk_.room->GiveUp();
  status = store_->Apply(writes, written);
  if (!absl::IsResourceExhausted(status)) return status;
  LogError("nothing can be stored, and so nothing new is ordered, until there is room: {}",
           Message(status));
  while (absl::IsResourceExhausted(status) && WaitForRoom()) {
    disk_.room->Check();
    status = store_->Apply(writes, written);
  }
  if (status.ok()) LogInfo("the disk takes writes again");
  return status;
}

Status Shell::TickOnce(std::vector<Event> events, std::vector<Command>* commands) {
  const MonoTime began = Now();
  TickResult result;
  uint64_t sequence = 0;
  {
    const std::lock_guard lock(state_mutex_);
    result = state_->Tick(std::move(events), began, UnixMsNow());
    sequence = state_->views().sequence();
    ++ticked_;
    const std::lock_guard stored(stored_mutex_);
    if (!result.writes.empty()) storing_since_ = began;
  }
  const bool writes = !result.writes.empty();
  last_written_ = {};
  // Stored before any command goes out: no worker may act on what a crash could make the
  // coordinator forget. Queries go on meanwhile.
  LH_RETURN_IF_ERROR(StoreWrites(std::move(result.writes), &last_written_));
  {
    const std::lock_guard lock(stored_mutex_);
    ++stored_ticks_;
    storing_since_.reset();
    ++ticks_;
    in_ticks_ += Now() - began;
  }
  stored_changed_.notify_all();
  *commands = std::move(result.commands);
  wake_at_ = result.wake_at;
  if (wake_at_.has_value()) wake_at_ = std::max(*wake_at_, Now() + kShortestWait);
  if (writes || sequence != seen_sequence_) NotifySoon();
  seen_sequence_ = sequence;
  return absl::OkStatus();
}

bool Shell::WaitUntilStored(uint64_t tick) const {
  std::unique_lock lock(stored_mutex_);
  const auto is_stored = [&] { return stored_ticks_ >= tick; };
  if (is_stored()) return true;
  // Whoever asks later does not wait longer.
  const MonoTime until = storing_since_.value_or(Now()) + kStoreWait;
  return stored_changed_.wait_until(lock, until.ToChrono(), is_stored);
}

std::optional<absl::Duration> Shell::unstored_for() const {
  const std::lock_guard lock(stored_mutex_);
  if (!storing_since_ || Now() - *storing_since_ < kStoreWait) return std::nullopt;
  return Now() - *storing_since_;
}

void Shell::NotifySoon() {
  if (notify_scheduled_) return;
  notify_scheduled_ = true;
  const absl::Duration since = Now() - last_notified_;
  CallAfter(std::max(absl::ZeroDuration(), kNotifyInterval - since), [this] {
    notify_scheduled_ = false;
    last_notified_ = Now();
    notifier_.Notify();
  });
}

void Shell::Execute(Command command) {
  std::visit(Overloaded{
                 [&](command::ToWorker& c) {
                   if (const auto sink = SinkOf(c.session)) sink->Send(std::move(c.message));
                 },
                 [&](command::CloseSession& c) {
                   if (const auto sink = SinkOf(c.session)) sink->Close(c.why, false);
                 },
                 [&](command::PrepareData& c) { chores_.Add(std::move(c)); },
                 [&](command::CheckCopies& c) {
                   c.folder ? folders_.Add(std::move(c)) : chores_.Add(std::move(c));
                 },
                 [&](command::StoreCheckpoint& c) { folders_.Add(std::move(c)); },
                 [&](command::TrimFolder& c) { folders_.Add(std::move(c)); },
                 [&](command::RunHook& c) { hooks_.Add(std::move(c)); },
                 [&](command::ComputePlan& c) { planner_.Add(std::move(c)); },
                 [&](command::ComputeRetune& c) { planner_.Add(std::move(c)); },
                 [&](command::CancelComputation& c) { planner_.Cancel(c.id); },
                 [&](command::DropCopies& c) {
                   for (const std::string& sha256 : c.sha256) {
                     const Status status = copies_->Remove(sha256);
                     if (!status.ok())
                       LogWarning("an old copy of a shard stays: {}", Message(status));
                   }
                 },
                 [&](command::CollectGarbage& c) {
                   disk_threads_.Add("garbage", [this, asked = std::move(c)] {
                     Answer(asked.request,
                            coordinator::CollectGarbage(asked, *blobs_, *copies_, store_,
                                                        asked.unnamed_age.value_or(kGarbageAge)));
                     if (disk_.index != nullptr && !asked.dry_run) {
                       const Status tidied = disk_.index->Tidy();
                       if (!tidied.ok()) LogWarning("the index of blobs: {}", Message(tidied));
                     }
                     if (disk_.room != nullptr) disk_.room->Check();
                   });
                 },
                 [&](command::ServeScopes& c) {
                   if (serve_scopes_) serve_scopes_(std::move(c.scopes));
                 },
                 [&](auto& reply) { Answer(reply.request, std::move(reply.reply)); },
             },
             command);
}

std::shared_ptr<SessionSink> Shell::SinkOf(SessionId session) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

void Shell::ForgetSessions(const std::vector<SessionId>& sessions) {
  if (sessions.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const SessionId session : sessions) sessions_.erase(session);
}

}  // namespace longhaul::coordinator
