// Any text as what a run file says of gradients and parameters.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "run/replicas/options.h"

LH_FUZZ_TARGET(replicas_options) {
  using namespace longhaul::replicas;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto gradients = ParseGradients(text);
  if (gradients.ok()) {
    const auto again = ParseGradients(ToString(*gradients));
    if (!again.ok() || ToString(*again) != ToString(*gradients)) std::abort();
  }
  return gradients.ok() || ParseParameters(text).ok();
}
