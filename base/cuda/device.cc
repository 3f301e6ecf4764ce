#include "base/cuda/device.h"

#include <fmt/core.h>

#include <utility>

#include "base/cuda/device_lost.h"
#include "base/cuda/module.h"
#include "base/units.h"

namespace longhaul::cuda {
namespace {

// 13000 is 13.0, 12040 is 12.4.
std::string FormatVersion(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Status CheckDriver(const DeviceTable& table, int driver_version) {
  if (driver_version == 0) {
    return FailedPrecondition(
        "expected an NVIDIA driver for CUDA {} or newer, found none (libcuda.so.1); "
        "install one, or use the CPU",
        FormatVersion(table.runtime_version));
  }
  // Within a major version older drivers serve newer runtimes.
  if (driver_version / 1000 < table.runtime_version / 1000) {
    return FailedPrecondition(
        "expected an NVIDIA driver for CUDA {}.0 or newer, this machine's serves {}; update it, "
        "or use the CPU",
        table.runtime_version / 1000, FormatVersion(driver_version));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Device> Device::Open(const DeviceTable* table, uint32_t index) {
  Device device(table, static_cast<int>(index));
  LH_RETURN_IF_ERROR(
      device.Check(table->driver_version(&device.driver_version_), "asking for the driver"));
  LH_RETURN_IF_ERROR(CheckDriver(*table, device.driver_version_));
  int count = 0;
  LH_RETURN_IF_ERROR(device.Check(table->device_count(&count), "counting GPUs"));
  if (count == 0) {
    return absl::FailedPreconditionError(
        "expected a GPU, the driver shows none to this process; look at nvidia-smi and at "
        "CUDA_VISIBLE_DEVICES");
  }
  if (index >= static_cast<uint32_t>(count)) {
    return InvalidArgument(
        "expected a GPU from cuda:0 to cuda:{}, as this process sees them, got cuda:{}", count - 1,
        index);
  }
  auto info = std::make_shared<DeviceInfo>();
  LH_RETURN_IF_ERROR(
      device.Check(table->describe(device.index_, info.get()), "reading its properties"));
  device.info_ = std::move(info);
  const int major = device.info_->major;
  const int minor = device.info_->minor;
  if (major < kMinimumMajor || (major == kMinimumMajor && minor < kMinimumMinor)) {
    return FailedPrecondition("expected a GPU of compute capability {}.{} or newer, {} has {}.{}",
                              kMinimumMajor, kMinimumMinor, device.Name(), major, minor);
  }
  return device;
}

StatusOr<Device> Device::Open(uint32_t index) {
  LH_ASSIGN_OR_RETURN(const DeviceTable* const table, LoadModule(DefaultModulePath()));
  return Open(table, index);
}

std::string Device::Name() const {
  return info_ == nullptr ? fmt::format("cuda:{}", index_)
                          : fmt::format("cuda:{} ({})", index_, info_->name);
}

std::string Device::Describe() const {
  return fmt::format(
      "cuda:{}: {}, compute capability {}.{}, {} multiprocessors, {}, driver for CUDA {}, runtime "
      "{}",
      index_, info_->name, info_->major, info_->minor, info_->multiprocessors,
      FormatBytes(static_cast<double>(info_->memory_bytes)), FormatVersion(driver_version_),
      FormatVersion(table_->runtime_version));
}

Status Device::Check(int code, std::string_view what) const {
  if (code == 0) return absl::OkStatus();
  Status status =
      Internal("{}: {} failed: {} (CUDA error {})", Name(), what, table_->error_text(code), code);
  return LosesDevice(code) ? DeviceLost(std::move(status)) : status;
}

}  // namespace longhaul::cuda
