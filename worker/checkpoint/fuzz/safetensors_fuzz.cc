// Any bytes: parsed or refused, and what was parsed can be written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "worker/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::worker;
  const auto parsed = ParseSafetensors(std::as_bytes(std::span(data, size)));
  if (!parsed.ok()) return 0;
  std::string bytes = SafetensorsHeader(parsed->arrays, parsed->metadata);
  for (const NamedArray& array : parsed->arrays) {
    bytes.append(reinterpret_cast<const char*>(array.values.data()),
                 array.values.size() * sizeof(float));
  }
  const auto again = ParseSafetensors(std::as_bytes(std::span(bytes)));
  if (!again.ok() || again->arrays.size() != parsed->arrays.size()) std::abort();
  return 0;
}
