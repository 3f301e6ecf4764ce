// The state that all components of the state machine share: workers, runs, the time of the tick,
// and the tick's output. Components change a run's state only through Moves (moves.h). An epoch is
// one attempt to train a run (base/ids.h).
//
// A pointer to a worker is valid until the next event is handled, or the tick ends. A pointer to a
// run is valid until that run is removed. Not thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/commands.h"
#include "coordinator/state/ids.h"
#include "coordinator/state/ledger/fault_counts.h"
#include "coordinator/state/ledger/run.h"
#include "coordinator/state/ledger/tick_clock.h"
#include "coordinator/state/ledger/worker.h"
#include "coordinator/state/options.h"

namespace longhaul::coordinator {

// How long the coordinator waits for a worker's answer beyond the question's own time limit.
inline constexpr absl::Duration kAnswerPatience = absl::Seconds(5);

class Ledger {
 public:
  Ledger(const StateOptions& options, uint64_t next_event_sequence, MonoTime now);

  // ---- The tick
  void BeginTick(MonoTime now, int64_t unix_ms);
  // Returns the output of the tick. `wake`: when the components need the next tick even if no event
  // arrives; MonoTime::max(): never. Unless `wake` is max(), the output asks for the next tick
  // within one heartbeat interval.
  TickResult EndTick(MonoTime wake);
  // The time of the tick. All times of the state machine are on this clock (tick_clock.h).
  MonoTime now() const { return clock_.now(); }
  // Total time for which the process was stopped.
  absl::Duration asleep() const { return clock_.asleep(); }
  int64_t unix_ms() const { return unix_ms_; }   // wall clock, for records only
  MonoTime created() const { return created_; }  // when the coordinator started
  const StateOptions& options() const { return options_; }
  // Returns the first number for the kind `of_what` of questions to workers. The number differs
  // after each restart of the coordinator, so that late answers to an earlier process match no
  // question of the present process.
  uint64_t FirstNumber(std::string_view of_what) const;

  // ---- What goes out
  template <class T>
  void Do(T command) {
    out_.commands.emplace_back(std::move(command));
  }
  // Puts the command before the others of this tick.
  template <class T>
  void DoFirst(T command) {
    out_.commands.emplace(out_.commands.begin(), std::move(command));
  }
  template <class T>
  void Write(T write) {
    out_.writes.emplace_back(std::move(write));
  }
  // The commands of this tick so far.
  const std::vector<Command>& commands() const { return out_.commands; }
  // Logs an event. `run`: the run of the event; null: the event belongs to no run.
  void Log(const Run* run, std::string_view kind, std::string text);
  template <class Arg, class... Args>
  void Log(const Run* run, std::string_view kind, fmt::format_string<Arg, Args...> format,
           Arg&& arg, Args&&... args) {
    Log(run, kind, fmt::format(format, std::forward<Arg>(arg), std::forward<Args>(args)...));
  }
  // Returns a command that names the run, the epoch, and the assignment of that epoch or, if it has
  // none, its DraftTag. The caller adds the command's body.
  v1::WorkerCommand CommandFor(const RunId& run, Epoch epoch) const;
  // Returns 32 bytes that name the run, the epoch and the present leader, before there is an
  // assignment.
  std::string DraftTag(const RunId& run, Epoch epoch) const;
  // The worker must be connected, here and in SendAbort.
  void Send(const Worker& worker, v1::WorkerCommand command);
  // Makes the worker drop the epoch. `finished`: every stage has finished.
  void SendAbort(const Worker& worker, const RunId& run, Epoch epoch, const std::string& reason,
                 bool finished = false);
  void Count(FaultKind kind) { faults_.Add(kind); }
  const FaultCounts& faults() const { return faults_; }

  // ---- Changes. sequence() grows with every change that people may see.
  void Changed(Run& run);  // records a change that is not stored
  void Store(Run& run);    // records a change, and writes the run at the end of the tick
  // Records a change of the list of runs, or of the list of workers.
  void ListChanged() { ++sequence_; }
  uint64_t sequence() const { return sequence_; }
  // Counts a message that does not fit the run's present epoch or state. Logs only the first such
  // message of the run.
  void DropMessage(Run& run, const Worker& worker, const v1::WorkerMessage& message,
                   std::string_view why);

  // ---- Workers
  std::map<WorkerId, Worker>& workers() { return workers_; }
  const std::map<WorkerId, Worker>& workers() const { return workers_; }
  // Null: there is no such worker.
  const Worker* FindWorker(const WorkerId& id) const;
  Worker* FindWorker(const WorkerId& id);
  // Null: no worker has this session.
  Worker* WorkerOf(SessionId session);
  // Returns the connected worker with exactly this incarnation (process); null: there is none.
  Worker* LiveWorkerOf(const WorkerId& id, const Incarnation& incarnation);
  // By name in natural order: "worker2" before "worker10".
  const std::set<Worker*, NameLess>& connected() const { return connected_; }
  void Connect(Worker& worker, SessionId session);
  // The worker must be connected.
  void Disconnect(Worker& worker);
  // "b", or "b (1f3c9a20)" if another connected worker has the name "b".
  std::string Label(const Worker& worker) const;
  std::string Label(const StageRecord& stage) const;  // "worker b (stage 1)"

  // ---- Runs
  std::map<RunId, Run>& runs() { return runs_; }
  const std::map<RunId, Run>& runs() const { return runs_; }
  // Adds a run from the store as the newest run.
  Run& Load(RunRecord record);
  // Call it when a run has come to another state, is new, or has another run file: keeps Active()
  // and WithCheckpointWork().
  void NoteState(Run& run);
  // Call it before a run is removed from runs().
  void NoteRemoved(const Run& run);
  // Null: there is no such run.
  Run* FindRun(const RunId& id);
  // Returns the run with this id, else the newest run with this name. `owner`: if set, only runs of
  // this owner count. kNotFound: there is none; the message is the same whether others have one.
  StatusOr<Run*> RunCalled(std::string_view id_or_name);
  StatusOr<const Run*> RunCalled(std::string_view id_or_name,
                                 std::optional<std::string_view> owner = std::nullopt) const;
  std::vector<Run*> RunsInOrder();  // oldest first
  // The same without the runs that have ended, which may be many more: what is looked at in every
  // tick.
  std::vector<Run*> Active() const;
  // The runs whose file asks for work on checkpoints, oldest first: a folder that stores them, or a
  // program that gets them. That work may go on after the run's end.
  std::vector<Run*> WithCheckpointWork() const;
  // Returns the stage that this process of the worker has in the run; null: it has none.
  StageRecord* StageOf(Run& run, const Worker& worker);
  uint64_t NextOrder() { return next_order_++; }  // for Run::order and Run::queue_order

  // Aborts the process if workers, sessions and names contradict each other.
  void CheckInvariants() const;

 private:
  const StateOptions options_;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, WorkerId> sessions_;
  std::set<Worker*, NameLess> connected_;  // into workers_
  std::unordered_map<std::string, size_t> connected_names_;
  std::map<RunId, Run> runs_;
  std::map<uint64_t, Run*> active_, with_checkpoint_work_;  // into runs_, by their order
  std::set<RunId> dirty_;                                   // have Run::dirty
  FaultCounts faults_;
  uint64_t next_order_ = 1;
  uint64_t next_event_;
  uint64_t sequence_;
  const MonoTime created_;
  // The current tick.
  TickClock clock_;
  TickResult out_;
  int64_t unix_ms_ = 0;
};

}  // namespace longhaul::coordinator
