// Sweep files from anywhere: no crash, no leak, and what parses has at least one point.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "deploy/sweep/sweep_spec.h"

LH_FUZZ_TARGET(sweep_spec) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto spec = longhaul::ParseSweepSpec(input, "fuzz.yaml");
  if (!spec.ok()) return false;
  if (spec->rates.empty() || spec->links.empty() || spec->delays.empty() || spec->repeats == 0) {
    std::abort();
  }
  return true;
}
