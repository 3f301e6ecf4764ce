// Tells relays whose tickets count now (transport/relay/ticket.h): those of assignments that have
// stages, of drafts, which measure links, and of transfers of shards under way. A relay refuses all
// other tickets, so nobody uses one after its run has ended, or in a later epoch, which begins when
// a worker is revoked. A new session of a worker is told again, so a restart of either side forgets
// nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "coordinator/state/ids.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class RelayScopes {
 public:
  RelayScopes(Ledger& ledger, const Planning& planning, const Shards& shards)
      : ledger_(ledger), planning_(planning), shards_(shards) {}

  // Tells each relay that has heard something else. Call it at the end of each tick: its commands
  // go out before those of the tick that need the tickets.
  void Advance();

 private:
  std::vector<std::string> ScopesNow() const;

  Ledger& ledger_;
  const Planning& planning_;
  const Shards& shards_;
  // What the coordinator's own relay, and the relay of each session, were told last.
  std::optional<std::vector<std::string>> told_own_;
  std::map<SessionId, std::vector<std::string>> told_;
};

}  // namespace longhaul::coordinator
