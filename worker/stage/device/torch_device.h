// The device on which LibTorch computes: the CPU, or a GPU by a module that is opened at run time
// (torch_cuda.h).
//
// Internal to worker/stage, except LoadTorchCuda (it shows LibTorch).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "base/device_name.h"

namespace longhaul::worker {

c10::Device TorchDevice(const DeviceName& name);

// Waits for the work queued on this thread's current stream, and for no other stream. Does nothing
// on the CPU.
void AwaitTorch(const c10::Device& device);

// Peak memory that LibTorch took of the device since ForgetPeakMemory, its cache included. 0 on the
// CPU, where LibTorch does not count.
uint64_t PeakMemoryBytes(const c10::Device& device);
void ForgetPeakMemory(const c10::Device& device);
// Memory that LibTorch holds now, its cache included.
uint64_t MemoryBytes(const c10::Device& device);
// Frees the unused part of the cache.
void TrimMemory(const c10::Device& device);

// For a thread that computes on another GPU: gives it a stream of its own on `device`, so that its
// reads there wait for no other work. Only complete data may be read.
void ReadApartFrom(const c10::Device& device);

}  // namespace longhaul::worker
