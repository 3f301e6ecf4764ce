#include "base/cuda/device_lost.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/cord.h"

namespace longhaul::cuda {
namespace {

constexpr char kMark[] = "longhaul/device-lost";

// Codes and texts of cudaError_t (driver_types.h, cudaGetErrorString).
struct LosingError {
  int code;
  std::string_view words;
};
constexpr std::array<LosingError, 14> kLosing = {{
    {214, "uncorrectable ECC error encountered"},
    {220, "uncorrectable NVLink error detected during the execution"},
    {700, "an illegal memory access was encountered"},
    {702, "the launch timed out and was terminated"},
    {710, "device-side assert triggered"},
    {714, "hardware stack error"},
    {715, "an illegal instruction was encountered"},
    {716, "misaligned address"},
    {717, "operation not supported on global/shared address space"},
    {718, "invalid program counter"},
    {719, "unspecified launch failure"},
    {719, "unspecified driver error"},
    {721, "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {999, "unknown error"},
}};

}  // namespace

bool LosesDevice(int code) {
  return std::ranges::any_of(kLosing, [&](const LosingError& one) { return one.code == code; });
}

bool LosesDevice(std::string_view words) {
  return std::ranges::any_of(kLosing, [&](const LosingError& one) {
    return words.find("CUDA error: " + std::string(one.words)) != std::string_view::npos;
  });
}

Status DeviceLost(Status status) {
  status.SetPayload(kMark, absl::Cord("1"));
  return status;
}

bool IsDeviceLost(const Status& status) {
  return status.GetPayload(kMark).has_value();
}

}  // namespace longhaul::cuda
