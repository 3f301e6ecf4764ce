#include "codec/simd/targets.h"

#include <fmt/ranges.h>
#include <hwy/highway.h>

#include <algorithm>

namespace longhaul::codec {
namespace {

// Those that were compiled and that this CPU has, the best (the lowest bit) first; whatever
// UseKernelTarget says.
const std::vector<int64_t>& Available() {
  static const auto& targets = *new std::vector<int64_t>(hwy::SupportedAndGeneratedTargets());
  return targets;
}

}  // namespace

std::vector<std::string> KernelTargets() {
  std::vector<std::string> names;
  for (const int64_t target : Available()) names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string KernelTarget() {
  return hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
}

Status UseKernelTarget(std::string_view name) {
  int64_t wanted = 0;
  for (const int64_t target : Available()) {
    if (hwy::TargetName(target) == name) wanted = target;
  }
  if (wanted == 0 && !name.empty()) {
    return absl::InvalidArgumentError(fmt::format("this CPU has no kernels for '{}' (it has: {})",
                                                  name, fmt::join(KernelTargets(), ", ")));
  }
  hwy::SetSupportedTargetsForTest(wanted);
  return absl::OkStatus();
}

}  // namespace longhaul::codec
