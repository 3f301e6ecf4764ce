// One GPU. Every failure is a Status whose sentence names the device, the failed action and what
// the user can do.
//
//   LH_ASSIGN_OR_RETURN(Device device, Device::Open(0));
//   LH_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
//
// Cheap to copy; streams, buffers and events hold a copy. Any thread. Calls that use the device
// make it the calling thread's current device (table.h).
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
  // Checks the driver, the index and the compute capability. `table` lives to the end of the
  // process. kFailedPrecondition, or kInvalidArgument for an index out of range.
  static StatusOr<Device> Open(const DeviceTable* table, uint32_t index);
  // Loads the program's module first (module.h).
  static StatusOr<Device> Open(uint32_t index);

  int index() const { return index_; }
  const DeviceInfo& info() const { return *info_; }
  const DeviceTable& table() const { return *table_; }
  // "cuda:0 (NVIDIA H100 80GB HBM3)"
  std::string Name() const;
  // "cuda:0: NVIDIA H100 80GB HBM3, compute capability 9.0, 132 multiprocessors, 85 GB, driver
  // for CUDA 13.0, runtime 13.0"
  std::string Describe() const;

  // OK for 0, else kInternal "<name>: <what>: <the runtime's text>"; IsDeviceLost (device_lost.h)
  // is true if this process cannot use the device any more.
  Status Check(int code, std::string_view what) const;

 private:
  Device(const DeviceTable* table, int index) : table_(table), index_(index) {}

  const DeviceTable* table_;
  int index_;
  int driver_version_ = 0;
  std::shared_ptr<const DeviceInfo> info_;
};

}  // namespace longhaul::cuda
