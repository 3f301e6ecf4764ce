// Lists the links of active runs of which an end reports trouble. A link is lost if its connection
// broke. A link is suspect if one end hears nothing from the other end.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"

namespace longhaul::coordinator {

struct LinkTrouble {
  std::map<CellId, bool> stages;  // reporting stages; true: lost, false: suspect
  MonoTime lost_at;               // time of the newest report of a lost connection
  double away_seconds = 0;        // longest time for which one end heard nothing from the other
  uint64_t frames_resent = 0;     // by both ends
};

class LinkTroubles : public MoveListener {
 public:
  explicit LinkTroubles(Ledger& ledger) : ledger_(ledger) {}

  // Takes a stage's report on one of its links, and logs what is new.
  void OnLink(Run& run, const StageRecord& stage, const v1::LinkEvent& link);
  // Drops what the stage has reported of its links. Call this when the stage's worker has a new
  // session: a later report may have been lost with the old session.
  void ForgetWordOf(const Run& run, const StageRecord& stage);

  bool Any(const Run& run) const { return !of_.Of(run).empty(); }
  // Null: no end of the link reports trouble.
  const LinkTrouble* Find(const Run& run, EdgeId edge) const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  void OnHealed(Run& run, const StageRecord& stage, const v1::LinkEvent& link,
                const std::string& pair);

  Ledger& ledger_;
  PerRun<std::map<EdgeId, LinkTrouble>> of_;
};

}  // namespace longhaul::coordinator
