// The device on which LibTorch computes: the CPU, or a GPU. For a GPU a module is opened at run
// time (torch_cuda.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: any. Errors: LibTorch's exceptions.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "base/device_name.h"

namespace longhaul::worker {

c10::Device TorchDevice(const DeviceName& name);

// Waits until the work that is queued on this thread's current CUDA stream is done. Does not wait
// for other streams. Does nothing on the CPU.
void AwaitTorch(const c10::Device& device);

// Returns the most bytes of the device's memory that LibTorch held at one time since
// ForgetPeakMemory, with its cache. 0 on the CPU, where LibTorch does not count.
uint64_t PeakMemoryBytes(const c10::Device& device);
void ForgetPeakMemory(const c10::Device& device);
// Returns the bytes of the device's memory that LibTorch holds now, with its cache. 0 on the CPU.
uint64_t MemoryBytes(const c10::Device& device);
// Frees the unused part of LibTorch's cache. Does nothing on the CPU.
void TrimMemory(const c10::Device& device);

// For a thread that computes on another GPU and reads data on `device`. Makes a separate stream the
// thread's current stream on `device`, so that the reads do not wait for other work. The data that
// the thread reads must be complete already. Does nothing on the CPU.
void ReadApartFrom(const c10::Device& device);

}  // namespace longhaul::worker
