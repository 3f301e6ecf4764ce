// Run files and overrides from anywhere: no crash, no leak, and what parses round-trips. The input
// is a run file; what follows a line "%%" is one override a line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/fuzz/target.h"
#include "run/file/run_spec.h"

LH_FUZZ_TARGET(run_spec) {
  using longhaul::ParseRunSpec;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find("\n%%\n");
  std::vector<std::string> overrides;
  if (split != std::string_view::npos) {
    std::string_view rest = input.substr(split + 4);
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      overrides.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  const auto spec = ParseRunSpec(input.substr(0, split), "fuzz.yaml", overrides);
  if (!spec.ok()) return false;
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  if (!again.ok() || *again != *spec) std::abort();
  return true;
}
