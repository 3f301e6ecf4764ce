// The functions that liblonghaul_cuda.so offers to the programs that open it. The module and the
// programs both compile this header, but share no library. So the header has plain types, and the
// functions return the CUDA runtime's error codes (0 is success). Programs call these functions
// through device.h, stream.h and memory.h.
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
inline constexpr uint32_t kTableVersion = 11;
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
  uint32_t version;
  // 13000 for 13.0: the version that the module was compiled with.
  int runtime_version;
  // Never null; the text lives for ever.
  const char* (*error_text)(int code);
  // 13000 for 13.0: the newest CUDA that the driver supports; 0 if there is no driver.
  int (*driver_version)(int* version);
  // Succeeds if there are 0 devices. Needs a driver that supports runtime_version.
  int (*device_count)(int* count);
  int (*describe)(int device, DeviceInfo* info);
  // Sets the calling thread's current device, also for libraries that ask CUDA for it.
  int (*make_current)(int device);
  // Whether `device` can access the memory of `other` directly (peer access).
  int (*reaches)(int device, int other, bool* reaches);

  // Streams do not wait for the default stream.
  int (*stream_create)(int device, void** stream);
  int (*stream_destroy)(void* stream);
  // An event that is not `timed` is cheaper.
  int (*event_create)(int device, bool timed, void** event);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event, bool* done);
  // Both events must be done and `timed`.
  int (*event_elapsed)(void* start, void* end, float* milliseconds);
  int (*stream_wait)(void* stream, void* event);

  // Work that is queued on the stream between the two calls becomes a graph, and does not run yet.
  int (*capture_begin)(void* stream);
  int (*capture_end)(void* stream, void** graph);
  int (*graph_launch)(void* graph, void* stream);
  int (*graph_destroy)(void* graph);

  int (*allocate)(int device, size_t bytes, void** memory);
  int (*free)(void* memory);
  // Pinned host memory, for copies that do not block the caller.
  int (*allocate_pinned)(int device, size_t bytes, void** memory);
  int (*free_pinned)(void* memory);
  // Pins the caller's host memory, and returns the address at which `device` can access it.
  int (*map)(int device, void* memory, size_t bytes, void** memory_dev);
  int (*unmap)(void* memory);
  // Either side may be device or pinned memory.
  int (*copy)(void* to, const void* from, size_t bytes, void* stream);

  // words[k] = Scramble(words[k], k, seed) (pattern.h) for k < count; `words` is device memory.
  int (*scramble)(int device, uint32_t* words, uint64_t count, uint32_t seed, void* stream);

  // The kernels of the codecs: never null, opaque here.
  const codec::cuda::KernelTable* codec_kernels;
  // The kernels of collectives: never null, opaque here.
  const collective::KernelTable* collective_kernels;
};

// Exported by the module under this name; never null.
using DeviceTableFunction = const DeviceTable*();
inline constexpr char kDeviceTableFunction[] = "longhaul_cuda_device_table";

}  // namespace longhaul::cuda
