// Sweep files from anywhere: no crash, no leak, and what parses has at least one point.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "deploy/sweep/sweep_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto spec = longhaul::ParseSweepSpec(input, "fuzz.yaml",
                                             [](std::string_view) { return absl::OkStatus(); });
  if (!spec.ok()) return 0;
  if (spec->rates.empty() || spec->links.empty() || spec->delays.empty() || spec->repeats == 0) {
    std::abort();
  }
  return 0;
}
