// The safetensors format: 8 bytes header length (little-endian), a JSON header of tensors and text
// metadata, the tensors' bytes without gaps. Other programs read these files as they are.
//
// Thread-safe (pure functions).
#ifndef LONGHAUL_WORKER_CHECKPOINT_SAFETENSORS_H_
#define LONGHAUL_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct Safetensors {
  SafetensorsMetadata metadata;
  std::vector<NamedArray> arrays;  // in the order of their bytes
};

// What precedes the arrays' values, which follow one after the other as little-endian floats.
std::string SafetensorsHeader(const std::vector<NamedArray>& arrays,
                              const SafetensorsMetadata& metadata);

// `bytes` is one whole file and may be hostile. kInvalidArgument says what is wrong with it; of the
// format's types only F32 is read.
StatusOr<Safetensors> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_CHECKPOINT_SAFETENSORS_H_
