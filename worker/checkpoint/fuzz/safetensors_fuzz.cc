// Any bytes: parsed or refused, and what was parsed can be written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/fuzz/target.h"
#include "worker/checkpoint/safetensors.h"

LH_FUZZ_TARGET(safetensors) {
  using namespace longhaul::worker;
  const auto parsed = ParseSafetensors(std::as_bytes(std::span(data, size)));
  if (!parsed.ok()) return false;
  std::string bytes = SafetensorsHeader(parsed->arrays, parsed->metadata);
  for (const NamedArray& array : parsed->arrays) {
    bytes.append(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size());
  }
  const auto again = ParseSafetensors(std::as_bytes(std::span(bytes)));
  if (!again.ok() || again->arrays.size() != parsed->arrays.size()) std::abort();
  return true;
}
