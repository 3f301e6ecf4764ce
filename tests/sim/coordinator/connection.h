// One stream between a worker and the coordinator, as gRPC gives it: each direction in order,
// nothing lost in the middle; what is under way when it breaks arrives up to some point and is lost
// from there on, though its sender was told that it was written. Where the network only held it
// back it arrives late, when there may be another stream (Faults::late).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Called at arrival. An end whose process has died is cleared by its owner.
  struct WorkerEnd {
    std::function<void(v1::WorkerCommand)> command;
    std::function<void()> ended;
  };
  struct CoordinatorEnd {
    std::function<void(v1::WorkerMessage)> message;  // hello first
    std::function<void(std::string why)> ended;
  };
  Connection(World* world, WorkerEnd worker, CoordinatorEnd coordinator)
      : world_(world), worker_(std::move(worker)), coordinator_(std::move(coordinator)) {}

  void Up(v1::WorkerMessage message);
  void Down(v1::WorkerCommand command);
  // The coordinator ends the stream behind what it has sent.
  void Close();
  // The network breaks it. `silent`: neither end is told soon; what they still write is lost.
  void Cut(bool silent);
  // The same for one direction; what goes the other way arrives until an end has noticed.
  void CutOneWay(bool up);
  // The worker's machine has another address: nothing comes through any more, which the worker
  // notices `after` a while, and the coordinator by its own time limit or a new session.
  void WorkerMoved(absl::Duration after);
  // The path is slow for a while; order stays.
  void Delay(absl::Duration delay);

  // The process at this end is gone; the other end hears of it, or not for a while.
  void WorkerDied(bool silent);
  void CoordinatorDied(bool silent);
  bool open() const { return open_; }

 private:
  struct Direction {
    MonoTime newest;  // arrival of the newest message
    MonoTime lost_from = MonoTime::max();
    std::optional<absl::Duration> late_by;  // of what is lost
  };
  void Send(Direction& direction, std::function<void()> arrive, bool may_be_late = false);
  void Break(Direction& direction);
  void TellWorker(absl::Duration after);
  void TellCoordinator(absl::Duration after, std::string why);

  World* const world_;
  WorkerEnd worker_;
  CoordinatorEnd coordinator_;
  Direction up_, down_;
  bool open_ = true, worker_told_ = false, coordinator_told_ = false;
};

}  // namespace longhaul::coordinator::sim
