// When a standby takes over. Two machines alone cannot tell a coordinator that is gone from a line
// that is cut; the coordinator's workers can. They dial the standby when they have lost their
// coordinator, and not before. So a standby takes over when it hears nothing more itself, and most
// of the workers that were connected have come to it.
//
// Where they stay away for long the coordinator lives, with records that the standby does not get:
// its copy is not whole any more. Pure.
#ifndef LONGHAUL_COORDINATOR_STANDBY_TAKEOVER_H_
#define LONGHAUL_COORDINATOR_STANDBY_TAKEOVER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::coordinator {

// The coordinator says something each second. After so long a silence it has lost the lease that
// each word of it renews.
inline constexpr absl::Duration kLease = absl::Seconds(5);
// A worker that still looks for a coordinator has dialled the standby within this time.
inline constexpr absl::Duration kWitnessLasts = absl::Seconds(10);
// A worker notices within 20 s that its coordinator's machine is gone without a word.
inline constexpr absl::Duration kWorkersCome = absl::Seconds(40);
// A standby that its coordinator has not heard for so long takes over no more, unless it has by
// then: it does not hear much longer than it is heard, and its copy is stale after kWorkersCome.
inline constexpr absl::Duration kStandbyIsStale = absl::Seconds(60);

// What a standby knows of its coordinator.
struct Contact {
  bool whole = false;             // its copy has all that the coordinator had when it spoke last
  MonoTime heard{};               // when it spoke last
  std::set<std::string> workers;  // who were connected then, by their ids
  // When each has wanted a session of the standby last, since the coordinator spoke.
  std::map<std::string, MonoTime> have_come;
};

enum class Verdict : unsigned char {
  kWait,
  kTakeOver,
  kStale,  // the copy is not whole any more
};

Verdict Judge(const Contact& contact, MonoTime now);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STANDBY_TAKEOVER_H_
