// The shell around the pure state machine. One thread, the loop, collects events, ticks the state,
// stores its writes, then carries out its commands, and notifies followers. Storing may take long:
// the disk or the other coordinator may not answer. Queries go on meanwhile, and say that what they
// show is not stored yet. Work that may take longer than a tick has threads of its own: for data,
// shards and garbage; for uploads; and for plans.
//
// Every method may be called on any thread, except Stop and the destructor: one thread at a time.
// Stop waits until its deadline; the others block for one tick at most. The shell calls other
// objects without holding its locks. See docs/design/threading.md.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/watchdog.h"
#include "base/work_threads.h"
#include "coordinator/hooks/hook_runner.h"
#include "coordinator/rpc/chores.h"
#include "coordinator/rpc/notifier.h"
#include "coordinator/rpc/pending_calls.h"
#include "coordinator/rpc/places.h"
#include "coordinator/rpc/planner_thread.h"
#include "coordinator/rpc/stored_folders.h"
#include "coordinator/rpc/stored_reply.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_index.h"
#include "coordinator/store/disk_room.h"
#include "coordinator/store/store.h"

namespace longhaul::coordinator {

// The coordinator's own work since its start, and the current length of its queues.
struct ShellUse {
  uint64_t ticks = 0;
  double tick_seconds = 0;    // all ticks, with the store's transactions
  size_t events_waiting = 0;  // for the next tick
  size_t sessions = 0;        // workers'
  PlannerUse planner;
};

// The shell's view of a worker's stream. The shell calls the methods on its loop, and Close also in
// Stop. Calls return at once, and do nothing after the stream's end.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Send(v1::WorkerCommand command) = 0;
  // Ends the stream once everything sent before has left. `retry`: the worker should dial again.
  virtual void Close(const std::string& why, bool retry) = 0;
  // The loop has taken this many more of the messages passed to Shell::Say.
  virtual void Taken(size_t messages) = 0;
};

// What the shell needs to go on while the disk is full, and to forget what it deletes. Null: none.
// Both must outlive the shell.
struct ShellDisk {
  DiskRoom* room = nullptr;
  BlobIndex* index = nullptr;
};

class Shell {
 public:
  using ServeScopes = std::function<void(std::vector<std::string> scopes)>;
  // How long a query waits for the store to have what it shows.
  static constexpr absl::Duration kStoreWait = absl::Milliseconds(50);
  // How long a heartbeat may wait, so that a tick takes those of many workers.
  static constexpr absl::Duration kHeartbeatWait = absl::Milliseconds(100);
  // How often workers hear that the coordinator leads.
  static constexpr absl::Duration kLeaderBeat = absl::Seconds(2);
  // Maximum number of workers' sessions, and of waiting CLI calls of each kind.
  static constexpr size_t kMaxSessions = kMaxWorkerStreams.in_all;
  static constexpr size_t kMaxPendingCalls = 1024;

  // Reads the store and starts the loop. `store`, `blobs` and `copies` (of checkpoint shards) must
  // outlive this object. Errors: those of the store. A run that cannot be read is no error; it is
  // logged and left out. `hooks_folder`: for HookRunner; needed if hooks are allowed. `objects`:
  // for StoredFolders. `serve_scopes`: gets the scopes of command::ServeScopes, on the loop; empty
  // without a relay.
  static StatusOr<std::unique_ptr<Shell>> Create(
      const StateOptions& options, Store* store, const BlobStore* blobs, const BlobStore* copies,
      DataPreparer preparer, Planner planner = {}, const std::string& hooks_folder = "",
      const remote::Settings& objects = {}, ServeScopes serve_scopes = {}, ShellDisk disk = {});
  ~Shell();
  // Ends the loop, then every stream and waiting call. The state machine hears nothing of it, so
  // after a restart its workers are just not connected yet. False: a thread was still busy with
  // disks at the deadline; the destructor waits for it. The destructor calls Stop if nobody did.
  bool Stop(Deadline deadline);
  // OK unless the loop ended by itself, because the store refused a write. After that no event is
  // processed.
  Status failure() const;

  // ---- Workers
  // Begins a session; keeps `sink` until the session ends. kResourceExhausted: too many sessions.
  // kUnavailable: the shell is stopping.
  StatusOr<SessionId> Join(const std::shared_ptr<SessionSink>& sink, v1::Hello hello);
  // Passes on a worker's message. `signature`: of its digests. Say, CopyStored and Leave do nothing
  // once the shell is stopping.
  void Say(SessionId session, v1::WorkerMessage message, Signature signature = Signature::kNone);
  // Tells the state that a copy of a shard was uploaded. `from`: the uploader, if known. Call it
  // before the worker gets its answer, so that the state knows the shard before the worker reports
  // it.
  void CopyStored(std::optional<WorkerId> from, std::string sha256);
  // Ends a session: its last call, exactly once. `for_good`: the worker will not come back.
  void Leave(SessionId session, std::string why, bool for_good = false);

  // ---- Calls that the state answers. `done` runs once, unless Drop returns true: on the loop or,
  // if the call is refused at once, inside Ask.
  template <class Asked>
  using Done = typename PendingCalls<typename Asked::Reply>::Done;
  // Passes a call to the state, and returns the call's id for Drop. `asked`: one of the events of
  // calls (coordinator/state/events.h). `done` gets kResourceExhausted if too many calls wait, and
  // kUnavailable if the shell is stopping.
  template <class Asked>
  RequestId Ask(Asked asked, Done<Asked> done) {
    auto& calls = std::get<PendingCalls<typename Asked::Reply>>(calls_);
    const RequestId id(++last_request_);
    if (calls.size() >= kMaxPendingCalls) {
      done(ResourceExhausted("{} calls of this kind are waiting already; try again later",
                             kMaxPendingCalls));
      return id;
    }
    if (const Status unsure = sure(); !unsure.ok()) {
      done(unsure);
      return id;
    }
    // Added before the event, because the loop may answer at once.
    calls.Add(id, std::move(done));
    asked.request = id;
    // Stop() may have answered the call in between; Answer then does nothing.
    if (!Post(std::move(asked))) calls.Answer(id, Stopping());
    // Again, because SetSure may have answered those that waited just before this one did.
    if (const Status unsure = sure(); !unsure.ok()) calls.Answer(id, OutcomeUnknown(unsure));
    return id;
  }
  // As Ask, with a new id and a new link secret for the run. `spec`: the run file of `request`,
  // which the caller has parsed and checked (submit_check.h).
  RequestId Submit(RunSpec spec, v1::SubmitRequest request, Submitter by,
                   Done<event::Submitted> done);
  RequestId PlanRun(RunSpec spec, v1::SubmitRequest request, Done<event::PlanAsked> done);
  // True: the call was still waiting, and its callback will not run.
  bool Drop(RequestId request);

  // ---- Leading
  // Says whether this coordinator may be sure that it leads. `sure` not OK (kUnavailable, with the
  // reason as a sentence): workers that come and new calls are refused with it, calls that wait are
  // answered that their outcome is not known yet, and workers get no beats. Queries are answered
  // all the same. OK at the beginning. Does not end the store's wait for a change under way, about
  // which the replicator decides.
  void SetSure(const Status& sure);
  Status sure() const;

  // ---- Queries
  // Reads the state between two ticks. The newest of it may not be stored yet. `query` must not
  // call the shell.
  template <class Query>
  auto Read(const Query& query) const {
    const std::lock_guard lock(state_mutex_);
    return query(state_->views());
  }
  // As Read, but waits up to kStoreWait until what `query` has seen is stored. `unstored`: gets
  // whether it is not stored even then.
  template <class Query>
  auto ReadStored(const Query& query, bool* unstored) const {
    std::unique_lock lock(state_mutex_);
    auto answer = query(state_->views());
    const uint64_t tick = ticked_;
    lock.unlock();
    *unstored = !WaitUntilStored(tick);
    return answer;
  }
  template <class Query>
  auto ReadStored(const Query& query) const {
    bool unstored = false;
    return ReadStored(query, &unstored);
  }
  // How long the newest writes have been waiting to be stored, if that is longer than kStoreWait.
  std::optional<absl::Duration> unstored_for() const;
  ShellUse Use() const;
  const Store& store() const { return *store_; }
  // What members may have at most, and what they have under way.
  const MemberLimits& limits() const { return limits_; }
  Places& places() { return places_; }
  // kResourceExhausted: the disk is full, so nothing new may begin.
  Status HasRoom() const;
  Notifier& notifier() { return notifier_; }

  // Threads on which uploads wait for disks; tokenization has other threads. Threads on which
  // submissions are checked, which may read large lists; of each member one at a time. Stopped with
  // the shell.
  WorkThreads& upload_threads() { return upload_threads_; }
  WorkThreads& submit_threads() { return submit_threads_; }

  // Runs `call` on the loop's thread after `delay`; never if the loop has ended.
  void CallAfter(absl::Duration delay, std::function<void()> call);

 private:
  Shell(Store* store, const BlobStore* blobs, const BlobStore* copies, DataPreparer preparer,
        Planner planner, const std::string& hooks_folder, const remote::Settings& objects,
        ServeScopes serve_scopes, ShellDisk disk, const MemberLimits& limits,
        std::unique_ptr<State> state);
  void Loop();
  // False: the loop must end.
  bool WaitForWork(std::vector<Event>* events, std::vector<std::function<void()>>* due);
  static Status Stopping();
  static Status OutcomeUnknown(const Status& unsure);
  // False: the shell is stopping, and drops the event. `wait`: how long the loop may leave it, and
  // what comes before it.
  bool Post(Event event, absl::Duration wait = absl::ZeroDuration());
  void PostLocked(Event event, absl::Duration wait = absl::ZeroDuration());
  void TellTaken(const std::vector<Event>& events);
  Status TickOnce(std::vector<Event> events, std::vector<Command>* commands);
  // Stores the writes of a tick, without locks. Waits while the disk is full.
  Status StoreWrites(std::vector<Write> writes, Written* written);
  bool WaitUntilStored(uint64_t tick) const;
  void BeatWorkers();
  // False: the shell is stopping.
  bool WaitForRoom();
  // Looks at the disk, again and again.
  void WatchDisk();
  void Execute(Command command);
  template <class Reply>
  void Answer(RequestId request, StatusOr<Reply> reply) {
    if constexpr (requires(Reply & said) { said.mutable_stored(); }) {
      if (reply.ok() && last_written_.change != 0 && !reply->stored().repeated()) {
        FillStored(last_written_, reply->mutable_stored());
      }
    }
    std::get<PendingCalls<Reply>>(calls_).Answer(request, std::move(reply));
  }
  std::shared_ptr<SessionSink> SinkOf(SessionId session) const;
  void ForgetSessions(const std::vector<SessionId>& sessions);
  void NotifySoon();

  Store* const store_;
  const BlobStore* const blobs_;
  const BlobStore* const copies_;
  const ServeScopes serve_scopes_;
  const ShellDisk disk_;
  const MemberLimits limits_;
  Places places_;
  Notifier notifier_;
  std::tuple<PendingCalls<v1::SubmitReply>, PendingCalls<v1::PlanReply>,
             PendingCalls<v1::StopReply>, PendingCalls<v1::ReplicasReply>,
             PendingCalls<v1::CheckpointsReply>, PendingCalls<v1::TraceReply>,
             PendingCalls<v1::SampleReply>, PendingCalls<v1::RemoveRunReply>,
             PendingCalls<v1::CollectGarbageReply>>
      calls_;

  mutable std::mutex
      state_mutex_;  // guards the two members below; held for a tick, never for a disk
  std::unique_ptr<State> state_;
  uint64_t ticked_ = 0;  // number of the newest tick

  mutable std::mutex stored_mutex_;  // guards the members up to in_ticks_
  mutable std::condition_variable stored_changed_;
  uint64_t stored_ticks_ = 0;              // ticks whose writes are stored
  std::optional<MonoTime> storing_since_;  // a tick's writes are being stored
  uint64_t ticks_ = 0;
  absl::Duration in_ticks_;

  mutable std::mutex mutex_;  // guards everything up to failure_
  std::condition_variable work_;
  std::vector<Event> events_;
  MonoTime events_due_ = MonoTime::max();  // when the loop has to take them
  std::multimap<MonoTime, std::function<void()>> timers_;
  std::unordered_map<SessionId, std::shared_ptr<SessionSink>> sessions_;
  uint64_t last_session_ = 0;
  bool stopping_ = false;
  Status failure_;
  mutable std::mutex sure_mutex_;  // guards sure_
  Status sure_;
  std::atomic<uint64_t> last_request_{0};

  // Used by the loop only.
  WatchedLoop watched_;
  Written last_written_;  // by the newest tick
  std::optional<MonoTime> wake_at_;
  uint64_t seen_sequence_ = 0;
  MonoTime last_notified_{};
  bool notify_scheduled_ = false;

  Chores chores_;
  WorkThreads disk_threads_;  // destroyed before the objects that run on them
  WorkThreads upload_threads_;
  WorkThreads submit_threads_;
  PlannerThreads planner_;
  HookRunner hooks_;
  StoredFolders folders_;
  std::thread thread_;
};

}  // namespace longhaul::coordinator
