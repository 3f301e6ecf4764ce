// Sends workers the commands for their stages: measure, assign, start, stop, new address. Carries
// out the actions kAssign, kStart and kStop of ledger/transitions.h.
#pragma once

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Orders : public MoveListener {
 public:
  Orders(Ledger& ledger, const WorkerLinks& links) : ledger_(ledger), links_(links) {}

  // These send a command to a connected worker.
  void SendMeasure(const Worker& worker, const RunId& run, Epoch epoch, const RunSpec& spec);
  void SendAssign(const Worker& worker, const Run& run, const StageRecord& stage);
  void SendStart(const Worker& worker, const Run& run);
  // Sends stop-after-step to the connected workers of first stages. A worker that is away gets
  // the command when it reconnects.
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
