#include "codec/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/simd/targets.cc"
#include <fmt/ranges.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::HWY_NAMESPACE {

int64_t OwnTarget() {
  return HWY_TARGET;
}

}  // namespace longhaul::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec {
namespace {

HWY_EXPORT(OwnTarget);

// Instruction sets that were compiled and that this CPU has, whatever UseKernelTarget says. The
// best one, which is the lowest bit, comes first.
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
  // Asks the kernels' own dispatch.
  return hwy::TargetName(HWY_DYNAMIC_DISPATCH(OwnTarget)());
}

Status UseKernelTarget(std::string_view name) {
  int64_t wanted = 0;
  for (const int64_t target : Available()) {
    if (hwy::TargetName(target) == name) wanted = target;
  }
  if (wanted == 0 && !name.empty()) {
    return InvalidArgument("this CPU has no kernels for '{}' (it has: {})", name,
                           fmt::join(KernelTargets(), ", "));
  }
  hwy::SetSupportedTargetsForTest(wanted);
  // What was chosen before is kept otherwise.
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return absl::OkStatus();
}

}  // namespace longhaul::codec
#endif  // HWY_ONCE
