// The functions of liblonghaul_cuda.so (the module) for the programs that open the module. The
// module and the programs both compile this header, but share no library. So the header has plain
// types. Functions that return int return an error code of the CUDA runtime; 0 is success. Programs
// call these functions through device.h, stream.h, memory.h and graph.h.
//
// Threads: every function may be called from any thread. A function with an argument `device` makes
// this device the calling thread's current one, except `describe` and `reaches`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::cuda {
struct KernelTable;  // codec/cuda/kernel_table.h
}  // namespace longhaul::codec::cuda
namespace longhaul::collective {
struct KernelTable;  // transport/collective/engine/kernel_table.h
}  // namespace longhaul::collective

namespace longhaul::cuda {

// Must grow with every change of DeviceTable: a program refuses a module of another version.
inline constexpr uint32_t kTableVersion = 12;
// The minimum compute capability for which the module has code.
inline constexpr int kMinimumMajor = 8;
inline constexpr int kMinimumMinor = 0;

struct DeviceInfo {
  char name[256];
  int major;  // compute capability
  int minor;
  int multiprocessors;
  uint64_t memory_bytes;
};

struct DeviceTable {
  uint32_t version;  // kTableVersion of the module
  // 13000 for 13.0: the version that the module was compiled with.
  int runtime_version;
  // Never null; the text lives for ever.
  const char* (*error_text)(int code);
  // Sets `*version` to the newest CUDA that the driver supports: 13000 for 13.0; 0: no driver.
  int (*driver_version)(int* version);
  // Succeeds if there are 0 devices. Needs a driver that supports runtime_version.
  int (*device_count)(int* count);
  int (*describe)(int device, DeviceInfo* info);
  // Sets the calling thread's current device, also for libraries that ask CUDA for it.
  int (*make_current)(int device);
  // Sets `*reaches`: whether `device` can access the memory of device `other` (peer access).
  int (*reaches)(int device, int other, bool* reaches);

  // Makes a stream that does not wait for the default stream.
  int (*stream_create)(int device, void** stream);
  int (*stream_destroy)(void* stream);
  // An event that is not `timed` is cheaper.
  int (*event_create)(int device, bool timed, void** event);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  // Sets `*done` to true if the work before the newest record is done. Does not wait.
  int (*event_query)(void* event, bool* done);
  // Both events must be done and `timed`.
  int (*event_elapsed)(void* start, void* end, float* milliseconds);
  // Makes later work of `stream` wait for the newest record of `event`.
  int (*stream_wait)(void* stream, void* event);

  // Work that this thread queues on the stream between the two calls does not run. capture_end
  // makes a graph of this work. capture_end must follow every successful capture_begin.
  int (*capture_begin)(void* stream);
  int (*capture_end)(void* stream, void** graph);
  int (*graph_launch)(void* graph, void* stream);
  int (*graph_destroy)(void* graph);

  int (*allocate)(int device, size_t bytes, void** memory);
  int (*free)(void* memory);
  // Pinned host memory, for copies that do not block the caller.
  int (*allocate_pinned)(int device, size_t bytes, void** memory);
  int (*free_pinned)(void* memory);
  // Pins the caller's host memory. Sets `*memory_dev` to the memory's address for `device`.
  int (*map)(int device, void* memory, size_t bytes, void** memory_dev);
  int (*unmap)(void* memory);
  // Queues a copy. `to` and `from` may be device or host memory; with unpinned host memory the call
  // may block.
  int (*copy)(void* to, const void* from, size_t bytes, void* stream);

  // words[k] = Scramble(words[k], k, seed) (pattern.h) for k < count; `words` is device memory.
  int (*scramble)(int device, uint32_t* words, uint64_t count, uint32_t seed, void* stream);

  // The kernels of the codecs: never null. codec/cuda defines the type.
  const codec::cuda::KernelTable* codec_kernels;
  // The kernels of collectives: never null. transport/collective defines the type.
  const collective::KernelTable* collective_kernels;
};

// The function that the module exports under the name kDeviceTableFunction. Its result is never
// null, and valid while the module is open.
using DeviceTableFunction = const DeviceTable*();
inline constexpr char kDeviceTableFunction[] = "longhaul_cuda_device_table";

}  // namespace longhaul::cuda
