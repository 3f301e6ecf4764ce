// How long two simulated coordinators wait for each other: as coordinator/standby does.
#pragma once

#include "absl/time/time.h"

namespace longhaul::coordinator::sim {

inline constexpr absl::Duration kLease = absl::Seconds(5);
inline constexpr absl::Duration kFollowerPatience = absl::Seconds(3);
inline constexpr absl::Duration kLook = absl::Milliseconds(200);
inline constexpr absl::Duration kWitnessBeat = absl::Seconds(1);
inline constexpr absl::Duration kFollowerBeat = absl::Seconds(1);
inline constexpr absl::Duration kWorkersBeat = absl::Seconds(2);
inline constexpr absl::Duration kDiskPatience = absl::Seconds(1);
inline constexpr absl::Duration kWatchdog = absl::Seconds(10);
inline constexpr absl::Duration kAskAgain = absl::Seconds(1);
inline constexpr absl::Duration kDialAgain = absl::Seconds(1);
inline constexpr absl::Duration kAskLimit = absl::Seconds(2);
// A leader keeps so many changes for a follower that comes back.
inline constexpr size_t kKeptChanges = 200;

}  // namespace longhaul::coordinator::sim
