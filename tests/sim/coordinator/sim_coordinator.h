// The real state machine in a model of its shell (coordinator/rpc/shell.cc): gathers events, ticks,
// stores, carries out; and dies, also between any two of these.
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
  SimCoordinator(World* world, SimStore* store, Checkers* checkers, StateOptions options);

  void Start();
  // kill -9, or its machine loses power.
  void Crash(bool silent);
  // SIGSTOP and SIGCONT, or a virtual machine that is paused: its clock goes on.
  void Stall(absl::Duration length);
  void JumpWallClock(absl::Duration by) { wall_offset_ += by; }

  bool running() const { return state_ != nullptr; }
  const Views& views() const { return state_->views(); }

  // A worker dials. Null: nobody answers.
  std::shared_ptr<Connection> Accept(Connection::WorkerEnd end);

  // A worker sends a shard. False: nobody answers.
  bool TakeCopy(const std::string& worker, const std::string& sha256);

  // A user's call. `make` gets the request's number; `done` runs once, with null when the process
  // died before it answered (whether it did anything is then not known).
  using Done = std::function<void(const Command* reply)>;
  void Ask(const std::function<Event(RequestId)>& make, Done done);

 private:
  // What comes from outside reaches the process when it runs, and not the next one.
  void Arrive(absl::Duration delay, std::function<void()> action);
  void Post(Event event);
  void ScheduleTick(absl::Duration delay);
  void Tick();
  void Execute(const Command& command);
  void Answer(RequestId request, const Command& reply);

  World* const world_;
  SimStore* const store_;
  Checkers* const checkers_;
  StateOptions options_;
  std::unique_ptr<State> state_;
  uint64_t process_ = 0;
  MonoTime stalled_until_, busy_until_;
  absl::Duration wall_offset_;
  std::vector<Event> events_;
  std::vector<std::weak_ptr<Connection>> accepted_;
  std::map<SessionId, std::shared_ptr<Connection>> sessions_;
  std::map<RequestId, Done> calls_;
  uint64_t last_session_ = 0, last_request_ = 0, ticks_scheduled_ = 0;
  bool tick_is_near_ = false;
};

}  // namespace longhaul::coordinator::sim
