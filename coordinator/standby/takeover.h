// Decides when a standby takes over. Two machines alone cannot tell a dead coordinator from a cut
// line, but the coordinator's workers can: a worker dials the standby only when it has lost its
// coordinator. So a standby takes over when it hears nothing itself and most of the workers that
// were connected have come to it.
//
// If the workers stay away for long, the coordinator lives and writes records that the standby does
// not get: its copy is then stale. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::coordinator {

// The coordinator sends a message each second, which renews its lease. After this silence the lease
// is lost.
inline constexpr absl::Duration kLease = absl::Seconds(5);
// A worker that still looks for a coordinator dials the standby at least this often.
inline constexpr absl::Duration kWitnessLasts = absl::Seconds(10);
// A worker notices within 20 s that its coordinator's machine vanished; add time for dialling.
inline constexpr absl::Duration kWorkersCome = absl::Seconds(40);
// A standby unheard by its coordinator for this long will not take over any more: it stops hearing
// about when it stops being heard, and its copy is stale after kWorkersCome.
inline constexpr absl::Duration kStandbyIsStale = absl::Seconds(60);

// What a standby knows about its coordinator.
struct Contact {
  bool whole = false;             // the copy had everything when the coordinator last spoke
  MonoTime heard{};               // when it last spoke
  std::set<std::string> workers;  // ids of the workers connected then
  // When each worker last asked the standby for a session, since the coordinator last spoke.
  std::map<std::string, MonoTime> have_come;
};

enum class Verdict : unsigned char {
  kWait,
  kTakeOver,
  kStale,  // the copy is no longer complete
};

Verdict Judge(const Contact& contact, MonoTime now);

}  // namespace longhaul::coordinator
