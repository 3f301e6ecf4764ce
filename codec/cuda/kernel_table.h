// The codecs' kernels that liblonghaul_cuda.so offers: plain types, compiled on both sides of
// dlopen (base/cuda/table.h). Programs use cuda_codec.h, which checks the arguments.
//
// Every function queues work on `stream` (a cudaStream_t of `device`), allocates nothing, waits for
// nothing, may be captured in a graph, and returns a code of the CUDA runtime, 0 for success.
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// A section of codec/sdp4bit, aligned to 16 bytes, and its numbers.
struct Sdp4bitArgs {
  float* values_dev;
  uint64_t count;  // more than 0
  uint32_t group;  // 128 or 2048
  uint32_t stochastic;
  uint32_t noise[4];
  uint64_t first;  // index of values[0] in the noise, a multiple of 64
  unsigned char* section_dev;
};
// The mean of transformed sections, in their order. The kernel transforms parts[own], which has
// plain numbers.
inline constexpr uint32_t kSdp4bitMostParts = 64;
struct Sdp4bitSumArgs {
  const void* parts_dev[kSdp4bitMostParts];
  uint32_t parts, own;
  uint64_t count;  // number of values, more than 0; sections have up to 31 more
  float* out_dev;
};

// codec/tagc/select.h for the values of one piece. Scratch is a TagcSelectScratch, aligned to 16
// bytes.
struct TagcSelectArgs {
  const float* values_dev;
  uint64_t count, keep;  // more than 0
  unsigned long long* bitmap_dev;
  unsigned char* scratch_dev;
};
// One family of codecs: `kernels` is the struct of codec/X/cuda/kernels.h whose kName is `name`.
struct FamilyKernels {
  const char* name;
  const void* kernels;
};

struct KernelTable {
  int (*write_header)(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
  const FamilyKernels* families;
  uint32_t family_count;
  // cuda_sdp4bit.h and cuda_tagc.h check the arguments.
  int (*sdp4bit_encode)(int device, const Sdp4bitArgs* args, void* stream);
  int (*sdp4bit_decode)(int device, const Sdp4bitArgs* args, void* stream);
  int (*sdp4bit_transform)(int device, float* values_dev, uint64_t count, bool back, void* stream);
  int (*sdp4bit_mean)(int device, const Sdp4bitSumArgs* args, void* stream);
  int (*tagc_select)(int device, const TagcSelectArgs* args, void* stream);
};

// Elements of a block of the selecting kernels.
inline constexpr uint64_t kTagcRun = 2048;
inline constexpr uint32_t kTagcBins = 2048;
struct TagcSelectScratch {
  constexpr explicit TagcSelectScratch(uint64_t count)
      : histogram(16),
        equal(histogram + 4 * kTagcBins),
        end(equal + 4 * ((count + kTagcRun - 1) / kTagcRun)) {}
  // The first 16 bytes are a TagcChoice.
  uint64_t histogram;
  // uint32 of each run: its elements with the threshold's magnitude; then the number in earlier
  // runs.
  uint64_t equal;
  uint64_t end;
};

}  // namespace longhaul::codec::cuda
