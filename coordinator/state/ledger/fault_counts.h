// Counts faults since the coordinator started, by kind. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace longhaul::coordinator {

enum class FaultKind : uint8_t {
  kSessionLost,        // a worker's connection to the coordinator ended
  kStageLost,          // a worker was lost whose stage had not finished
  kWorkerHung,         // a worker replaced its process because a thread was stuck
  kDeviceLost,         // a worker replaced its process because its GPU failed
  kLinkSuspect,        // one end of a link hears nothing from the other end
  kLinkLost,           // a link's connection broke
  kRunStalled,         // no stage made progress
  kRunInterrupted,     // a run began to recover: after a loss, or for another number of replicas
  kRunFailed,          // a run failed
  kStepNonFinite,      // a loss or norm was not finite, and the step was skipped
  kCheckpointSkipped,  // a stage could not write its shard
  kShardDamaged,       // a checkpoint's file was found damaged
  kContradiction,      // verification: digests that differ, a changed state, an implausible tensor
};

// In the order of FaultKind.
inline constexpr std::array<std::string_view, 13> kFaultNames = {
    "session_lost",       "stage_lost",    "worker_hung",     "device_lost", "link_suspect",
    "link_lost",          "run_stalled",   "run_interrupted", "run_failed",  "step_non_finite",
    "checkpoint_skipped", "shard_damaged", "contradiction",
};

struct FaultCounts {
  std::array<uint64_t, kFaultNames.size()> counts{};
  void Add(FaultKind kind) { ++counts[static_cast<size_t>(kind)]; }
  uint64_t Of(FaultKind kind) const { return counts[static_cast<size_t>(kind)]; }
};
static_assert(static_cast<size_t>(FaultKind::kContradiction) + 1 == kFaultNames.size());

}  // namespace longhaul::coordinator
