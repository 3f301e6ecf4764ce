// The only calls of the CUDA runtime outside of kernels.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "base/cuda/module/scramble.cuh"
#include "base/cuda/table.h"

namespace longhaul::codec::cuda {
extern const KernelTable kKernelTable;  // in the codecs' part of the module
}  // namespace longhaul::codec::cuda
namespace longhaul::collective {
extern const KernelTable kKernelTable;  // in the collectives' part
}  // namespace longhaul::collective

namespace longhaul::cuda {
namespace {

// A failed call must not show up in a later cudaGetLastError.
int Cleared(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

// Runs `call` with `device` as this thread's current device.
template <class Call>
int On(int device, Call&& call) {
  const cudaError_t error = cudaSetDevice(device);
  return Cleared(error == cudaSuccess ? call() : error);
}

int Describe(int device, DeviceInfo* info) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return Cleared(error);
  *info = {};
  std::memcpy(info->name, properties.name,
              std::min(sizeof(info->name), sizeof(properties.name)) - 1);
  info->major = properties.major;
  info->minor = properties.minor;
  info->multiprocessors = properties.multiProcessorCount;
  info->memory_bytes = properties.totalGlobalMem;
  return cudaSuccess;
}

int DeviceCount(int* count) {
  *count = 0;
  const cudaError_t error = cudaGetDeviceCount(count);
  const int cleared = Cleared(error);
  if (error != cudaErrorNoDevice) return cleared;
  *count = 0;
  return cudaSuccess;
}

// Ends the capture in any case: a stream that still captures is of no more use.
int CaptureEnd(void* stream, void** graph) {
  cudaGraph_t captured = nullptr;
  cudaError_t error = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured);
  if (error == cudaSuccess) {
    error = cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(graph), captured, 0);
  }
  if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
  return Cleared(error);
}

int EventQuery(void* event, bool* done) {
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
  *done = error == cudaSuccess;
  return error == cudaErrorNotReady ? static_cast<int>(cudaSuccess) : Cleared(error);
}

constexpr DeviceTable kTable = {
    .version = kTableVersion,
    .runtime_version = CUDART_VERSION,
    .error_text = [](int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); },
    .driver_version = [](int* version) { return Cleared(cudaDriverGetVersion(version)); },
    .device_count = DeviceCount,
    .describe = Describe,
    .make_current = [](int device) { return On(device, [] { return cudaSuccess; }); },
    .reaches =
        [](int device, int other, bool* reaches) {
          int can = 0;
          const int code = Cleared(cudaDeviceCanAccessPeer(&can, device, other));
          *reaches = can != 0;
          return code;
        },
    .stream_create =
        [](int device, void** stream) {
          return On(device, [&] {
            return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream),
                                             cudaStreamNonBlocking);
          });
        },
    .stream_destroy =
        [](void* stream) { return Cleared(cudaStreamDestroy(static_cast<cudaStream_t>(stream))); },
    .event_create =
        [](int device, bool timed, void** event) {
          return On(device, [&] {
            return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event),
                                            timed ? cudaEventDefault : cudaEventDisableTiming);
          });
        },
    .event_destroy =
        [](void* event) { return Cleared(cudaEventDestroy(static_cast<cudaEvent_t>(event))); },
    .event_record =
        [](void* event, void* stream) {
          return Cleared(
              cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
        },
    .event_query = EventQuery,
    .event_elapsed =
        [](void* start, void* end, float* milliseconds) {
          return Cleared(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(start),
                                              static_cast<cudaEvent_t>(end)));
        },
    .stream_wait =
        [](void* stream, void* event) {
          return Cleared(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                             static_cast<cudaEvent_t>(event), 0));
        },
    .capture_begin =
        [](void* stream) {
          return Cleared(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream),
                                                cudaStreamCaptureModeThreadLocal));
        },
    .capture_end = CaptureEnd,
    .graph_launch =
        [](void* graph, void* stream) {
          return Cleared(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph),
                                         static_cast<cudaStream_t>(stream)));
        },
    .graph_destroy =
        [](void* graph) {
          return Cleared(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
        },
    .allocate = [](int device, size_t bytes,
                   void** memory) { return On(device, [&] { return cudaMalloc(memory, bytes); }); },
    .free = [](void* memory) { return Cleared(cudaFree(memory)); },
    .allocate_pinned =
        [](int device, size_t bytes, void** memory) {
          return On(device, [&] { return cudaHostAlloc(memory, bytes, cudaHostAllocPortable); });
        },
    .free_pinned = [](void* memory) { return Cleared(cudaFreeHost(memory)); },
    .map =
        [](int device, void* memory, size_t bytes, void** memory_dev) {
          return On(device, [&] {
            const cudaError_t error =
                cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
            if (error != cudaSuccess) return error;
            const cudaError_t found = cudaHostGetDevicePointer(memory_dev, memory, 0);
            if (found != cudaSuccess) static_cast<void>(cudaHostUnregister(memory));
            return found;
          });
        },
    .unmap = [](void* memory) { return Cleared(cudaHostUnregister(memory)); },
    .copy =
        [](void* to, const void* from, size_t bytes, void* stream) {
          return Cleared(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                                         static_cast<cudaStream_t>(stream)));
        },
    .scramble =
        [](int device, uint32_t* words, uint64_t count, uint32_t seed, void* stream) {
          return On(device, [&] {
            return LaunchScramble(words, count, seed, static_cast<cudaStream_t>(stream));
          });
        },
    .codec_kernels = &codec::cuda::kKernelTable,
    .collective_kernels = &collective::kKernelTable,
};

}  // namespace
}  // namespace longhaul::cuda

extern "C" __attribute__((visibility("default"))) const longhaul::cuda::DeviceTable*
longhaul_cuda_device_table() {
  return &longhaul::cuda::kTable;
}
