// What went wrong since the coordinator started, by kind. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace longhaul::coordinator {

enum class FaultKind : uint8_t {
  kSessionLost,        // of a worker with the coordinator
  kStageLost,          // a worker with a stage that had not finished
  kWorkerHung,         // a worker gave its process up because a thread was stuck
  kDeviceLost,         // or because of its GPU
  kLinkSuspect,        // no sign of life from the other end
  kLinkLost,           // its connection broke
  kRunStalled,         // no stage made progress
  kRunInterrupted,     // an epoch ended before its time
  kRunFailed,          // and no other follows
  kStepNonFinite,      // was skipped
  kCheckpointSkipped,  // a stage could not write it
  kShardDamaged,       // a file of a checkpoint is not what it was
};

inline constexpr std::array<std::string_view, 12> kFaultNames = {
    "session_lost", "stage_lost",      "worker_hung",        "device_lost",
    "link_suspect", "link_lost",       "run_stalled",        "run_interrupted",
    "run_failed",   "step_non_finite", "checkpoint_skipped", "shard_damaged",
};

struct FaultCounts {
  std::array<uint64_t, kFaultNames.size()> counts{};
  void Add(FaultKind kind) { ++counts[static_cast<size_t>(kind)]; }
  uint64_t Of(FaultKind kind) const { return counts[static_cast<size_t>(kind)]; }
};
static_assert(static_cast<size_t>(FaultKind::kShardDamaged) + 1 == kFaultNames.size());

}  // namespace longhaul::coordinator
