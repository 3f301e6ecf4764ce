// Sends workers the commands for their stages: Measure, Assign, Start, StopAfterStep and Readdress
// (v1::WorkerCommand). Carries out the actions kAssign, kStart and kStop of ledger/transitions.h.
#pragma once

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Orders : public MoveListener {
 public:
  // Both arguments must outlive this object.
  Orders(Ledger& ledger, const WorkerLinks& links) : ledger_(ledger), links_(links) {}

  // SendMeasure asks `worker` to time the layers of `spec`, SendAssign to become the stage, and
  // SendStart to begin training. The process aborts if the worker is not connected.
  void SendMeasure(const Worker& worker, const RunId& run, Epoch epoch, const RunSpec& spec);
  void SendAssign(const Worker& worker, const Run& run, const StageRecord& stage);
  void SendStart(const Worker& worker, const Run& run);
  // Tells the connected workers of first stages to stop after the current step. If a worker of a
  // first stage is not connected, call SendStop again when this worker reconnects.
  void SendStop(const Run& run);
  // Tells the worker that dials this edge the new addresses of the edge's other end. Does nothing
  // if the dialing worker is not connected, or if the other end has no address for the edge.
  void SendReaddress(const Run& run, const Edge& edge);

  void OnMove(Run&, const Transition&) override {}
  void Act(Run& run, Action action) override;

 private:
  Ledger& ledger_;
  const WorkerLinks& links_;
};

}  // namespace longhaul::coordinator
