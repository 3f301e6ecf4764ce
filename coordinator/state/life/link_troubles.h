// Links of running epochs whose ends do not hear each other well.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"

namespace longhaul::coordinator {

struct LinkTrouble {
  std::map<CellId, bool> stages;  // who says so; true: its connection is lost, else suspect
  MonoTime lost_at;               // when the last of them said that its connection is lost
  double away_seconds = 0;        // the longest time for which a side was without the other
  uint64_t frames_resent = 0;     // by both sides
};

class LinkTroubles : public MoveListener {
 public:
  explicit LinkTroubles(Ledger& ledger) : ledger_(ledger) {}

  void OnLink(Run& run, const StageRecord& stage, const v1::LinkEvent& link);
  // The stage has a new session. Its last report on its links may be out of date, because a later
  // report may be lost with the connection.
  void ForgetWordOf(const Run& run, const StageRecord& stage);

  bool Any(const Run& run) const { return !of_.Of(run).empty(); }
  // Null: both ends are well.
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
