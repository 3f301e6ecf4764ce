// The collectives' kernels that liblonghaul_cuda.so offers: plain types, compiled on both sides of
// dlopen (base/cuda/table.h). Every function queues work on `stream` (a cudaStream_t of `device`),
// waits for nothing, may be captured in a graph, and returns a code of the CUDA runtime.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_KERNEL_TABLE_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_KERNEL_TABLE_H_

#include <cstdint>

namespace longhaul::collective {

inline constexpr uint32_t kMostParts = 64;

// dtype: 1 fp32, 2 fp16, 3 bf16.
struct SumArgs {
  const void* parts_dev[kMostParts];
  void* out_dev;
  uint64_t count;
  uint32_t parts, dtype;
};

// Words that are copied to host memory which the device reaches.
struct ReadArgs {
  const void* from_dev[2 * kMostParts];
  uint64_t* to;
  uint32_t count;
};

struct KernelTable {
  int (*sum)(int device, const SumArgs* args, void* stream);
  int (*read)(int device, const ReadArgs* args, void* stream);
  int (*zero)(int device, void* to_dev, uint64_t bytes, void* stream);
};

}  // namespace longhaul::collective

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_KERNEL_TABLE_H_
