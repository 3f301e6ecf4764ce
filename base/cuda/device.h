// One GPU, used through a DeviceTable: the CUDA functions of liblonghaul_cuda.so (table.h). The
// message of a failed Status names the device and the failed action, and says what the user can do
// about a missing or unfit GPU.
//
//   LH_ASSIGN_OR_RETURN(Device device, Device::Open(0));
//   LH_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
//
// Cheap to copy: streams, events and graphs hold a copy. Thread-safe. Calls that use the device
// make it the calling thread's current CUDA device (table.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/cuda/table.h"
#include "base/status.h"

namespace longhaul::cuda {

class Device {
 public:
  // Opens the GPU that has `index` in the CUDA runtime, from 0. `table` (LoadModule, module.h) must
  // live to the end of the process. kInvalidArgument: no GPU has this index. kFailedPrecondition:
  // no GPU at all, or the driver or the compute capability is too old. kInternal: a CUDA call
  // failed.
  static StatusOr<Device> Open(const DeviceTable* table, uint32_t index);
  // Loads the module at DefaultModulePath() (module.h), then opens the GPU with the module's table.
  // kFailedPrecondition also if the module cannot be loaded.
  static StatusOr<Device> Open(uint32_t index);

  int index() const { return index_; }
  // Valid while this object or a copy lives.
  const DeviceInfo& info() const { return *info_; }
  const DeviceTable& table() const { return *table_; }
  // "cuda:0 (NVIDIA H100 80GB HBM3)"
  std::string Name() const;
  // "cuda:0: NVIDIA H100 80GB HBM3, compute capability 9.0, 132 multiprocessors, 85 GB, driver
  // for CUDA 13.0, runtime 13.0"
  std::string Describe() const;

  // Converts an error code of the CUDA runtime: OK for 0, else kInternal "<name>: <what> failed:
  // <the runtime's text> (CUDA error <code>)". `what` names the action: "making a stream". If this
  // process cannot use the device any more, IsDeviceLost is true for the result (device_lost.h).
  Status Check(int code, std::string_view what) const;

 private:
  Device(const DeviceTable* table, int index) : table_(table), index_(index) {}

  const DeviceTable* table_;
  int index_;
  int driver_version_ = 0;
  std::shared_ptr<const DeviceInfo> info_;
};

}  // namespace longhaul::cuda
