#include "worker/stage/device/torch_device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace longhaul::worker {

c10::Device TorchDevice(const DeviceName& name) {
  if (!name.cuda_index) return c10::Device(c10::DeviceType::CPU);
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(*name.cuda_index)};
}

void AwaitTorch(const c10::Device& device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

namespace {

// Zeros for the CPU, whose memory nobody counts.
c10::CachingAllocator::Stat Reserved(const c10::Device& device) {
  if (device.is_cpu()) return {};
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(device.type())
      ->getDeviceStats(device.index())
      .reserved_bytes[kAll];
}

}  // namespace

uint64_t PeakMemoryBytes(const c10::Device& device) {
  return static_cast<uint64_t>(Reserved(device).peak);
}

uint64_t MemoryBytes(const c10::Device& device) {
  return static_cast<uint64_t>(Reserved(device).current);
}

void ForgetPeakMemory(const c10::Device& device) {
  if (device.is_cpu()) return;
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

void TrimMemory(const c10::Device& device) {
  if (device.is_cpu()) return;
  c10::getDeviceAllocator(device.type())->emptyCache();
}

void ReadApartFrom(const c10::Device& device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  devices.exchangeStream(devices.getStreamFromGlobalPool(device));
}

}  // namespace longhaul::worker
