// The real state machine (coordinator/state) in a simulated shell, which stands for
// coordinator/rpc/shell.h. The shell collects events, ticks the state machine, stores its writes
// and carries out its commands. The simulated process can die between any two of these actions.
// Threads: one, which runs the timeline. All times are virtual.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/connection.h"
#include "tests/sim/coordinator/sim_store.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

// What a coordinator asks of the seat that it has, if it is one of two (pair/pair_seat.h).
struct SeatHooks {
  // Commits the writes of a tick, later, and runs `then`.
  std::function<void(std::vector<Write> writes, std::function<void()> then)> commit;
  std::function<bool(const v1::Hello& hello)> admits;  // false: the worker should ask again
  std::function<uint64_t()> committed;                 // number of the newest committed change
  std::function<void(bool silent)> die;                // a fault ends the process
  uint64_t first_number = 0;  // of sessions and calls: they differ from the other coordinator's
};

class SimCoordinator {
 public:
  // All pointers must outlive this object. `store` may be null if the seat stores.
  SimCoordinator(World* world, SimStore* store, Checkers* checkers, StateOptions options);
  // One of two coordinators, which Lead starts.
  SimCoordinator(World* world, Checkers* checkers, StateOptions options, SeatHooks hooks);

  // Starts to lead with what `store` has. `checked`: the checkers follow this one from now on.
  void Lead(const SimStore& store, const coordinator::Lead& lead, bool checked);
  // Another coordinator leads now, so the checkers do not follow this one any more.
  void Supersede() { checked_ = false; }
  // Whoever waits for the answer to a call learns that it is not known.
  void FailCalls();
  // Sends every worker a sign of life.
  void Beat();
  // The writes of a tick wait for their commit.
  bool committing() const { return committing_; }
  // The machine was paused: its clocks are `length` behind.
  void LoseTime(absl::Duration length) { lost_time_ += length; }

  // Starts a process with what the store has. Does nothing if one runs.
  void Start();
  // Ends the process without warning. `silent`: its machine loses power, so workers notice only
  // after a while. Does nothing if no process runs.
  void Crash(bool silent);
  // Pauses the process for `length`, as SIGSTOP does. The clocks go on.
  void Stall(absl::Duration length);
  // Moves the machine's wall clock forward; backward if `by` is negative.
  void JumpWallClock(absl::Duration by) { wall_offset_ += by; }

  bool running() const { return state_ != nullptr; }
  // Only while running() is true. Valid until the process dies.
  const Views& views() const { return state_->views(); }

  // A worker opens a stream. Null: no process runs.
  std::shared_ptr<Connection> Accept(Connection::WorkerEnd end);

  // Worker id `worker` uploads a copy of a checkpoint file (shard). False: no process runs.
  bool TakeCopy(const std::string& worker, const std::string& sha256);

  // A user calls the coordinator. `make` makes the call's event from the call's number. `done` runs
  // once, later, with the reply, which is valid during `done` only. Null: the process died first,
  // so it is unknown whether it carried out the call.
  using Done = std::function<void(const Command* reply)>;
  void Ask(const std::function<Event(RequestId)>& make, Done done);

 private:
  // Runs `action` after `delay`, and not while the process is stalled. Drops `action` if the
  // process has died by then.
  void Arrive(absl::Duration delay, std::function<void()> action);
  void Post(Event event);
  void ScheduleTick(absl::Duration delay);
  void Tick();
  void CarryOut(const TickResult& result, const std::vector<SessionId>& left, uint64_t survives);
  void Die(bool silent);
  void Begin(const SimStore& store);
  MonoTime LocalNow() const;
  void SendTo(Connection* connection, v1::WorkerCommand message);
  void Execute(const Command& command);
  void Answer(RequestId request, const Command& reply);
  // What the shell does with folders of the object store.
  void InTurn(const RunId& run, const std::function<void()>& job);
  event::CopiesChecked LookAt(const command::CheckCopies& look);
  void Describe(const command::StoreCheckpoint& describe);
  void Trim(const command::TrimFolder& trim);

  World* const world_;
  SimStore* const store_;
  Checkers* const checkers_;
  StateOptions options_;
  const std::optional<SeatHooks> seat_;
  bool checked_ = true;      // the checkers follow this one
  bool committing_ = false;  // the writes of a tick wait for their commit
  absl::Duration lost_time_;
  std::unique_ptr<State> state_;
  uint64_t process_ = 0;  // changes at each start and death
  MonoTime stalled_until_, busy_until_;
  absl::Duration wall_offset_;
  std::vector<Event> events_;
  std::vector<std::weak_ptr<Connection>> accepted_;
  std::map<SessionId, std::shared_ptr<Connection>> sessions_;
  std::map<RequestId, Done> calls_;
  uint64_t last_session_ = 0, last_request_ = 0, ticks_scheduled_ = 0;
  bool tick_is_near_ = false;
  std::map<RunId, MonoTime> folder_free_;  // when the last job on the run's folder is done
};

}  // namespace longhaul::coordinator::sim
