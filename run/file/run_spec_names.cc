// What run files call the values of their choices.
#include <string_view>

#include "run/file/run_spec.h"

namespace longhaul {

std::string_view ToString(ComputeDtype dtype) {
  switch (dtype) {
    case ComputeDtype::kFp32:
      return "fp32";
    case ComputeDtype::kBf16:
      return "bf16";
    case ComputeDtype::kAuto:
      return "auto";
  }
  return "?";
}

std::string_view ToString(Recompute what) {
  switch (what) {
    case Recompute::kNone:
      return "none";
    case Recompute::kBlocks:
      return "blocks";
    case Recompute::kStage:
      return "stage";
  }
  return "?";
}

std::string_view ToString(SendOrder order) {
  switch (order) {
    case SendOrder::kAuto:
      return "auto";
    case SendOrder::kActivationsFirst:
      return "activations-first";
    case SendOrder::kAsReady:
      return "as-ready";
  }
  return "";
}

std::string_view ToString(LostReplica what) {
  return what == LostReplica::kExact ? "exact" : "continue";
}

std::string_view ToString(PlacementKind kind) {
  return kind == PlacementKind::kAuto ? "auto" : "names";
}

std::string_view ToString(OptimizerKind kind) {
  return kind == OptimizerKind::kMuon ? "muon" : "adamw";
}

std::string_view ToString(MomentDtype dtype) {
  return dtype == MomentDtype::kBf16 ? "bf16" : "fp32";
}

std::string_view ToString(EncryptKind kind) {
  switch (kind) {
    case EncryptKind::kAuto:
      return "auto";
    case EncryptKind::kRequired:
      return "required";
    case EncryptKind::kOff:
      return "off";
  }
  return "?";
}

std::string_view ToString(LrScheduleKind kind) {
  switch (kind) {
    case LrScheduleKind::kConstant:
      return "constant";
    case LrScheduleKind::kCosine:
      return "cosine";
    case LrScheduleKind::kLinear:
      return "linear";
    case LrScheduleKind::kWsd:
      return "wsd";
  }
  return "?";
}

std::string_view ToString(OnNonfinite what) {
  return what == OnNonfinite::kSkip ? "skip" : "stop";
}

std::string_view ToString(CleanValidation clean) {
  switch (clean) {
    case CleanValidation::kAlways:
      return "always";
    case CleanValidation::kEnd:
      return "end";
    case CleanValidation::kNever:
      return "never";
  }
  return "?";
}

std::string_view ToString(GroupCollective what) {
  switch (what) {
    case GroupCollective::kNone:
      return "none";
    case GroupCollective::kTaco:
      return "taco";
    case GroupCollective::kZip:
      return "zip";
    case GroupCollective::kAuto:
      return "auto";
  }
  return "?";
}

}  // namespace longhaul
