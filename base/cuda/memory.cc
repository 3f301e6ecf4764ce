#include "base/cuda/memory.h"

#include <fmt/core.h>

#include "base/cuda/device_lost.h"
#include "base/units.h"

namespace longhaul::cuda {
namespace {

StatusOr<Handle> Allocate(const Device& device, size_t bytes, std::string_view what,
                          int (*allocate)(int, size_t, void**), int (*free)(void*)) {
  void* memory = nullptr;
  const Status status = device.Check(
      allocate(device.index(), bytes, &memory),
      fmt::format("allocating {} of {}", FormatBytes(static_cast<double>(bytes)), what));
  if (IsDeviceLost(status)) return status;
  if (!status.ok()) return absl::ResourceExhaustedError(status.message());
  return Handle(memory, {free});
}

}  // namespace

StatusOr<DeviceBuffer> DeviceBuffer::Create(const Device& device, size_t bytes) {
  const DeviceTable& table = device.table();
  LH_ASSIGN_OR_RETURN(Handle memory,
                      Allocate(device, bytes, "device memory", table.allocate, table.free));
  return DeviceBuffer(std::move(memory), bytes);
}

StatusOr<PinnedBuffer> PinnedBuffer::Create(const Device& device, size_t bytes) {
  const DeviceTable& table = device.table();
  LH_ASSIGN_OR_RETURN(Handle memory, Allocate(device, bytes, "pinned host memory",
                                              table.allocate_pinned, table.free_pinned));
  return PinnedBuffer(std::move(memory), bytes);
}

StatusOr<MappedMemory> MappedMemory::Create(const Device& device, void* memory, size_t bytes) {
  void* memory_dev = nullptr;
  const Status status = device.Check(
      device.table().map(device.index(), memory, bytes, &memory_dev),
      fmt::format("pinning {} of shared memory", FormatBytes(static_cast<double>(bytes))));
  if (IsDeviceLost(status)) return status;
  if (!status.ok()) return absl::ResourceExhaustedError(status.message());
  return MappedMemory(Handle(memory, {device.table().unmap}), static_cast<std::byte*>(memory_dev));
}

}  // namespace longhaul::cuda
