// Memory that the GPU can access: device memory, and pinned host memory, which asynchronous copies
// need. Move-only. Contents are uninitialized. Freeing the memory waits for the device's work.
//
// Any thread may create and destroy buffers. If the process has lost the device, Create returns an
// error with IsDeviceLost (device_lost.h); for all other failures it returns kResourceExhausted.
#pragma once

#include <cstddef>
#include <span>

#include "base/cuda/device.h"
#include "base/cuda/handle.h"
#include "base/status.h"

namespace longhaul::cuda {

// Memory of one device, aligned to 256 bytes.
class DeviceBuffer {
 public:
  // `bytes` must not be 0. kResourceExhausted: the device has not enough memory left.
  static StatusOr<DeviceBuffer> Create(const Device& device, size_t bytes);

  // An address on the device: the host must not dereference it.
  void* data_dev() { return memory_.get(); }
  const void* data_dev() const { return memory_.get(); }
  size_t size() const { return size_; }

 private:
  DeviceBuffer(Handle memory, size_t size) : memory_(std::move(memory)), size_(size) {}
  Handle memory_;
  size_t size_;
};

// Pinned host memory. Any device may copy to and from it.
class PinnedBuffer {
 public:
  // `bytes` must not be 0. kResourceExhausted: the host cannot pin so many bytes.
  static StatusOr<PinnedBuffer> Create(const Device& device, size_t bytes);

  std::span<std::byte> span() { return {static_cast<std::byte*>(memory_.get()), size_}; }
  std::span<const std::byte> span() const {
    return {static_cast<const std::byte*>(memory_.get()), size_};
  }

 private:
  PinnedBuffer(Handle memory, size_t size) : memory_(std::move(memory)), size_(size) {}
  Handle memory_;
  size_t size_;
};

// Pins host memory that another object owns, so that a device can read and write the memory in
// place. The memory must outlive this object, which unpins it.
class MappedMemory {
 public:
  // `memory` must be the start of a page, and `bytes` a multiple of the page size.
  // kResourceExhausted: the host cannot pin so many bytes.
  static StatusOr<MappedMemory> Create(const Device& device, void* memory, size_t bytes);

  // The address of the memory for the device; the host must not use it.
  std::byte* data_dev() const { return data_dev_; }

 private:
  MappedMemory(Handle memory, std::byte* data_dev)
      : memory_(std::move(memory)), data_dev_(data_dev) {}
  Handle memory_;
  std::byte* data_dev_;
};

}  // namespace longhaul::cuda
