// Decides when a standby takes over. The standby alone cannot tell a dead coordinator from a broken
// network, but the coordinator's workers can: a worker dials the standby only if it has lost its
// coordinator. So a standby takes over when it hears nothing from the coordinator, and more than
// half of the workers that were connected to the coordinator have dialled the standby.
//
// If the workers do not come in time, the coordinator lives and writes records that the standby
// does not get. Then the standby's copy is stale, and the standby does not take over. Pure.
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
// A worker that looks for a coordinator dials the standby at least this often. Older dials do not
// count.
inline constexpr absl::Duration kWitnessLasts = absl::Seconds(10);
// Time until workers reach the standby: they notice within 20 s that the coordinator's machine
// vanished, and then dial.
inline constexpr absl::Duration kWorkersCome = absl::Seconds(40);
// If a coordinator has heard nothing from its standby for this long, the standby will not take
// over: both lose contact at the same time, and the standby's copy is stale after kWorkersCome.
inline constexpr absl::Duration kStandbyIsStale = absl::Seconds(60);

// What a standby knows of its coordinator and of the coordinator's workers.
struct Contact {
  // The standby's copy was complete when the coordinator last sent a message. False also if there
  // was no message yet; Judge then says kWait.
  bool whole = false;
  MonoTime heard{};               // when the coordinator last sent a message
  std::set<std::string> workers;  // ids of the workers that the coordinator had then
  // When each worker last asked the standby for a session, since the coordinator's last message.
  std::map<std::string, MonoTime> have_come;
};

enum class Verdict : unsigned char {
  kWait,
  kTakeOver,
  kStale,  // the copy is no longer complete; fetch a new one before any takeover
};

// Returns what the standby has to do. If no workers were connected, the standby takes over as soon
// as the lease is lost.
Verdict Judge(const Contact& contact, MonoTime now);

}  // namespace longhaul::coordinator
