// The numbers of a run's attempts ("epochs"). Another coordinator may have begun epochs that this
// one's records do not have, for example after the records were put back from an old copy. Workers
// name them, and the next epoch gets a higher number. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"
#include "coordinator/state/ledger/run.h"

namespace longhaul::coordinator {

// A run does not get this many epochs, so a worker that names one further ahead is wrong.
inline constexpr uint64_t kMostEpochsAhead = 1'000'000;

// Notes that a worker has named this epoch of the run. False: the number is too high to be true,
// and is not noted.
inline bool NoteEpoch(Run& run, Epoch epoch) {
  const uint64_t present = run.record.epoch.value();
  if (epoch.value() > present && epoch.value() - present > kMostEpochsAhead) return false;
  run.epoch_seen = std::max(run.epoch_seen, epoch);
  return true;
}

// Returns the number for the run's next epoch.
inline Epoch NextEpoch(const Run& run) {
  return std::max(run.record.epoch, run.epoch_seen).Next();
}

}  // namespace longhaul::coordinator
