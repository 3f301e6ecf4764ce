// What workers are told of their stages. Carries out the actions assign, start and stop of a run's
// table.
#pragma once

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Orders : public MoveListener {
 public:
  Orders(Ledger& ledger, const WorkerLinks& links) : ledger_(ledger), links_(links) {}

  void SendMeasure(const Worker& worker, const RunId& run, Epoch epoch, const RunSpec& spec);
  void SendAssign(const Worker& worker, const Run& run, const StageRecord& stage);
  void SendStart(const Worker& worker, const Run& run);
  // To the first stages that are connected; the others get the word when they are back.
  void SendStop(const Run& run);
  // To whoever dials over this edge: where the other end is reached.
  void SendReaddress(const Run& run, const Edge& edge);

  void OnMove(Run&, const Transition&) override {}
  void Act(Run& run, Action action) override;

 private:
  Ledger& ledger_;
  const WorkerLinks& links_;
};

}  // namespace longhaul::coordinator
