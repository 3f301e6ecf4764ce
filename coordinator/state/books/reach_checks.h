// The checks under way in which one worker dials another. Each pair of workers has at most one
// check in each direction over each transport.
//
// Pure data; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace longhaul::coordinator {

// A direction over one transport: worker `from` dials worker `to`.
struct ReachKey {
  WorkerId from, to;
  std::string transport;
  friend auto operator<=>(const ReachKey&, const ReachKey&) = default;
};

struct ReachCheck {
  ReachKey key;
  std::vector<std::string> addresses;  // addresses that the dialling worker tries
  MonoTime until;                      // the check ends without an answer at this time
};

class ReachChecks {
 public:
  // `first`: the number of the first check.
  explicit ReachChecks(uint64_t first) : next_(first) {}

  // Begins a check and returns its number. The key must have no check under way. `until` must not
  // be before the `until` of an earlier check.
  uint64_t Begin(ReachCheck check);
  // Null: no such check is under way. Valid until the check ends.
  const ReachCheck* Find(uint64_t id) const;
  bool IsUnderWay(const ReachKey& key) const { return ids_.contains(ByDialled(key)); }
  void End(uint64_t id);
  // Ends the checks whose time is over.
  void EndLate(MonoTime now);
  // Ends the checks in which the worker dials or is dialled.
  void EndOf(const WorkerId& worker);
  // Returns pairs of a dialled worker and a transport whose checks have ended since the last call.
  // Leaves out pairs with another check under way; a later call returns them.
  std::vector<std::pair<WorkerId, std::string>> TakeEnded();
  // Returns when the next check is late; MonoTime::max(): never.
  MonoTime NextWake() const;
  void CheckInvariants() const;

 private:
  // Sorted by the dialled worker and the transport.
  struct Dialled {
    WorkerId to;
    std::string transport;
    WorkerId from;
    friend auto operator<=>(const Dialled&, const Dialled&) = default;
  };
  static Dialled ByDialled(const ReachKey& key) { return {key.to, key.transport, key.from}; }

  uint64_t next_;
  std::map<uint64_t, ReachCheck> checks_;  // oldest first
  std::map<Dialled, uint64_t> ids_;
  std::set<std::pair<WorkerId, uint64_t>> by_dialler_;
  std::set<std::pair<WorkerId, std::string>> ended_;  // since the last TakeEnded
};

}  // namespace longhaul::coordinator
