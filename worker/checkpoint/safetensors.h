// Reads and writes checkpoint shards as safetensors files of fp32 and bf16 (format:
// run/published/safetensors.h). Other programs can read them.
//
// Pure functions, thread-safe.
#pragma once

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

// Returns the header with which the file begins. Reads names and shapes of `arrays`, not values.
// The caller appends the bytes of `arrays` in the same order, without gaps. Cannot fail.
std::string SafetensorsHeader(const std::vector<NamedArray>& arrays,
                              const SafetensorsMetadata& metadata);

// Reads `bytes`, a whole file, which may be hostile. The result holds copies. kInvalidArgument: not
// a valid file, or an array is neither fp32 nor bf16; the message names the fault.
StatusOr<Safetensors> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace longhaul::worker
