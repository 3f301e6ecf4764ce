// Simulates one gRPC stream between a worker and the coordinator. Each direction keeps its order
// and loses nothing while the stream is open. When the stream breaks, the messages under way arrive
// up to a random point; later ones are lost, although gRPC told their sender that they were
// written. With Faults::late, lost messages to the coordinator arrive later, when the worker may
// have opened another stream.
//
// Threads: one, which runs the timeline. Create it as a shared_ptr; pending deliveries keep the
// object alive.
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
  // The callbacks of one end. `command` and `message` are called when a message arrives. `ended` is
  // called at most once, when this end notices that the stream has ended; no callback runs after
  // `ended`. After WorkerDied or CoordinatorDied, no callback of that end runs. Empty: not called.
  struct WorkerEnd {
    std::function<void(v1::WorkerCommand)> command;
    std::function<void()> ended;
  };
  struct CoordinatorEnd {
    std::function<void(v1::WorkerMessage)> message;  // the first one is the worker's hello
    std::function<void(std::string why)> ended;
  };
  // `world` must outlive this object.
  Connection(World* world, WorkerEnd worker, CoordinatorEnd coordinator)
      : world_(world), worker_(std::move(worker)), coordinator_(std::move(coordinator)) {}

  // Up sends to the coordinator, Down to the worker. A message arrives after 1 to 80 ms, but never
  // before the one that was sent before it.
  void Up(v1::WorkerMessage message);
  void Down(v1::WorkerCommand command);
  // The coordinator ends the stream. Commands sent before still arrive.
  void Close();
  // The network breaks the stream. `silent` false: both ends notice within a second, but the
  // coordinator only after late messages. `silent` true: the worker notices within 20 s, and the
  // coordinator gets no `ended`.
  void Cut(bool silent);
  // Breaks one direction silently: to the coordinator if `up`, else to the worker. The other
  // direction still works. The worker notices after 1 to 20 s. The coordinator gets `ended` 50 ms
  // later if `up` is false, else never.
  void CutOneWay(bool up);
  // The worker's machine got another address, so nothing arrives any more. The worker notices after
  // `after`; the coordinator gets no `ended`.
  void WorkerMoved(absl::Duration after);
  // Messages sent after this call arrive `delay` from now at the earliest. Order stays.
  void Delay(absl::Duration delay);

  // The process at one end has died. `silent`: its machine died with it, so the coordinator gets no
  // `ended`, and a worker notices within 20 s. Otherwise the other end notices within 0.2 s, the
  // coordinator after late messages.
  void WorkerDied(bool silent);
  void CoordinatorDied(bool silent);
  // False once the stream has ended for both directions, even if an end has not noticed yet.
  bool open() const { return open_; }

 private:
  struct Direction {
    MonoTime newest;                        // when the newest message arrives
    MonoTime lost_from = MonoTime::max();   // messages that would arrive later are lost
    std::optional<absl::Duration> late_by;  // lost messages arrive this much later; nullopt: never
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
