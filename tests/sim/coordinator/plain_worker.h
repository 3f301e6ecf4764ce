// A worker of the simulation of two leaders (two_leaders.h): whom it obeys, its stage, and what it
// reports. Decides as the daemon does (worker/agent/desk.h, obedience.h). It has no links and no
// session of its own. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "run/plan/plan.h"
#include "tests/sim/coordinator/notes.h"
#include "tests/sim/coordinator/random.h"
#include "worker/agent/desk.h"
#include "worker/agent/obedience.h"
#include "worker/agent/report_outbox.h"

namespace longhaul::coordinator::sim {

class PlainWorker {
 public:
  struct Stage {
    worker::Topic topic;
    v1::Assign assign;
    CellId cell;
    uint64_t step = 0;
    bool ready = false, may_start = false, started = false, leaves = false;
    MonoTime busy_until;  // until it is ready, or has left
  };

  // Both pointers must outlive this object.
  PlainWorker(std::string name, Random* random, Notes* notes)
      : name_(std::move(name)), random_(random), notes_(notes) {}

  const std::string& name() const { return name_; }
  const worker::Obeyed& obeyed() const { return obeyed_; }
  const std::optional<Stage>& stage() const { return stage_; }
  // Work waits for the present stage to leave. A hello does not tell of it.
  bool HasNext() const { return next_.has_value(); }
  bool Trains() const { return stage_ && stage_->started && !stage_->leaves; }
  worker::ReportOutbox& outbox() { return outbox_; }

  // Its first message in a session.
  v1::Hello Hello() const;
  // A new process, which knows what its disk has.
  void Restart();
  // Handles a command. False: it is not obeyed, and the session must end. `leader`: its address.
  bool Handle(const v1::WorkerCommand& command, const std::string& leader);
  // Ends what takes time, where the time is over.
  void GoOn();
  // The stage has done this step. The stage must train.
  void StepDone(uint64_t step, bool is_last, double loss);

 private:
  void CheckObeyed(const v1::WorkerCommand& command);
  worker::Desk DeskNow() const;
  void HandleWork(const v1::WorkerCommand& command);
  void Leave();
  void TakeNext();
  void SayReady();
  void StartIfReady();
  void Report(v1::WorkerMessage message);

  const std::string name_;
  Random* const random_;
  Notes* const notes_;
  uint64_t incarnation_ = 1;
  worker::Obeyed obeyed_, stored_;  // in memory, and on the disk
  std::optional<Stage> stage_;
  std::optional<v1::WorkerCommand> next_;
  worker::ReportOutbox outbox_;
  // The truth: the leaders that it obeyed in all its processes.
  uint64_t highest_term_ = 0;
  std::map<uint64_t, std::string> tenure_of_;
};

}  // namespace longhaul::coordinator::sim
