// The real state machine (coordinator/state) in a simulated shell, which stands for
// coordinator/rpc/shell.h. The shell collects events, ticks the state machine, stores its writes
// and carries out its commands. The simulated process can die between any two of these actions.
// Threads: one, which runs the timeline. All times are virtual.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/connection.h"
#include "tests/sim/coordinator/sim_store.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

class SimCoordinator {
 public:
  // All pointers must outlive this object.
  SimCoordinator(World* world, SimStore* store, Checkers* checkers, StateOptions options);

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
