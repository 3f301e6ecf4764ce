// Checkpoint shards are safetensors files of fp32 (run/published/safetensors.h has the format), so
// other programs read them as they are.
//
// Thread-safe (pure functions).
#ifndef LONGHAUL_WORKER_CHECKPOINT_SAFETENSORS_H_
#define LONGHAUL_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/published/safetensors.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

using published::SafetensorsMetadata;

struct Safetensors {
  SafetensorsMetadata metadata;
  std::vector<NamedArray> arrays;  // in the order of their bytes
};

// What precedes the arrays' values, which follow one after the other as little-endian floats.
std::string SafetensorsHeader(const std::vector<NamedArray>& arrays,
                              const SafetensorsMetadata& metadata);

// `bytes` is one whole file and may be hostile. kInvalidArgument says what is wrong with it.
StatusOr<Safetensors> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_CHECKPOINT_SAFETENSORS_H_
