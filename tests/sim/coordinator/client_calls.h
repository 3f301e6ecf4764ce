// Users' calls that have an id (coordinator/state/once.h). A call whose answer was lost is made
// again, and some calls are made again without need. Checks that nothing is done twice: all answers
// to a call are the same, also after restarts, and nobody else gets them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/state/events.h"
#include "tests/sim/coordinator/sim_coordinator.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

class ClientCalls {
 public:
  using Make = std::function<Event(RequestId request, const std::string& id)>;
  // What an answer says, with its `stored`; an error if the call was refused.
  struct Said {
    Status status;
    std::string text;
    bool repeated = false;
  };
  // Passes a call to the coordinator (Cluster::Ask).
  using Ask = std::function<void(const std::function<Event(RequestId)>&, SimCoordinator::Done)>;

  // `world` must outlive this object.
  ClientCalls(World* world, Ask ask) : world_(world), ask_(std::move(ask)) {}

  // Makes a call. `make` makes its event with the id of the call; called for each try. `read` reads
  // the answer. `told`: called with each answer.
  void Begin(const std::string& what, Make make, std::function<Said(const Command&)> read,
             std::function<void(const Command&)> told);
  // Stops `run`, and sees whether others may ask with the same id.
  void Stop(const std::string& run, bool now);
  // From now on no call is made again.
  void End() { over_ = true; }

 private:
  struct Call {
    std::string what, id;
    Make make;
    std::function<Said(const Command&)> read;
    std::function<void(const Command&)> told;
    int tries = 0;
    std::optional<std::string> answer;
  };
  void Try(const std::shared_ptr<Call>& call);
  void TryLater(const std::shared_ptr<Call>& call, absl::Duration most);
  void OnAnswer(const std::shared_ptr<Call>& call, const Command* reply);
  // Asks to stop a run that is not there, with this id. Expects to be refused.
  void MustBeRefused(const Once& once, const std::string& why);

  World* const world_;
  const Ask ask_;
  uint64_t last_id_ = 0;
  bool over_ = false;
};

}  // namespace longhaul::coordinator::sim
