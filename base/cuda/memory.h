// Memory that the GPU can access: device memory, and pinned host memory, which asynchronous copies
// need. Move-only. Contents are uninitialised. Freeing memory waits for the device's work.
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
  // kResourceExhausted if the device has not enough memory left. `bytes` > 0.
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

// Pinned host memory; any device may copy to and from it.
class PinnedBuffer {
 public:
  // kResourceExhausted if the host cannot pin so many bytes. `bytes` > 0.
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

// Pins host memory of another owner so that one device reads and writes it in place. The memory
// must outlive this object.
class MappedMemory {
 public:
  // kResourceExhausted if the host cannot pin so many bytes. `memory` and `bytes` are whole pages.
  static StatusOr<MappedMemory> Create(const Device& device, void* memory, size_t bytes);

  // The address on the device.
  std::byte* data_dev() const { return data_dev_; }

 private:
  MappedMemory(Handle memory, std::byte* data_dev)
      : memory_(std::move(memory)), data_dev_(data_dev) {}
  Handle memory_;
  std::byte* data_dev_;
};

}  // namespace longhaul::cuda
