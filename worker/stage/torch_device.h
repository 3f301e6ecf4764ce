// Where LibTorch computes: the CPU, or a GPU of which a module of its own opens LibTorch's part.
//
// Internal to worker/stage but for LoadTorchCuda (it shows LibTorch).
#ifndef LONGHAUL_WORKER_STAGE_TORCH_DEVICE_H_
#define LONGHAUL_WORKER_STAGE_TORCH_DEVICE_H_

#include <c10/core/Device.h>

#include <cstdint>

#include "base/device_name.h"

namespace longhaul::worker {

c10::Device TorchDevice(const DeviceName& name);

// Until what was queued on the stream that this thread computes on is done. No other stream is
// waited for, and on the CPU nothing.
void AwaitTorch(const c10::Device& device);

// The most memory that LibTorch had of the device at a time since ForgetPeakMemory, with what it
// keeps to use again; of the CPU, which nobody counts, 0.
uint64_t PeakMemoryBytes(const c10::Device& device);
void ForgetPeakMemory(const c10::Device& device);
// What it has now, likewise.
uint64_t MemoryBytes(const c10::Device& device);
// Gives back what is kept and not in use.
void TrimMemory(const c10::Device& device);

// For a thread that computes on another GPU: what it reads of `device` waits for nothing there, and
// nothing there for it. What is read must be whole.
void ReadApartFrom(const c10::Device& device);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TORCH_DEVICE_H_
