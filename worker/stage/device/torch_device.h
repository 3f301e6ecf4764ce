// The device on which LibTorch computes: the CPU, or a GPU. For a GPU a module is opened at run
// time (torch_cuda.h).
//
// Internal to worker/stage (it shows LibTorch).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "base/device_name.h"

namespace longhaul::worker {

c10::Device TorchDevice(const DeviceName& name);

// Waits until the work that is queued on this thread's current CUDA stream is done. Does not wait
// for other streams. Does nothing on the CPU.
void AwaitTorch(const c10::Device& device);

// Most bytes of the device that LibTorch held at a time since ForgetPeakMemory, its cache included.
// 0 on the CPU, where LibTorch does not count.
uint64_t PeakMemoryBytes(const c10::Device& device);
void ForgetPeakMemory(const c10::Device& device);
// Bytes of the device that LibTorch holds now, its cache included. 0 on the CPU.
uint64_t MemoryBytes(const c10::Device& device);
// Frees the unused part of LibTorch's cache.
void TrimMemory(const c10::Device& device);

// Gives the calling thread, which computes on another GPU, a stream of its own on `device`. Its
// reads there then wait for no other work. It may read only data that is complete.
void ReadApartFrom(const c10::Device& device);

}  // namespace longhaul::worker
