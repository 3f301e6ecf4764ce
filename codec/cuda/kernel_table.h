// The codecs' kernels that the CUDA module, liblonghaul_cuda.so, offers to the program. Plain
// types, because both sides compile them (base/cuda/table.h). Programs use cuda_codec.h, which
// checks the arguments.
//
// Every function queues work on `stream`, a cudaStream_t of the device with index `device`. Any
// thread may call it. No function allocates or waits; all may be captured in a CUDA graph, and
// return a code of the CUDA runtime, 0 for success. `args` is read during the call only.
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// A section of codec/sdp4bit, aligned to 16 bytes, and the numbers that it encodes.
struct Sdp4bitArgs {
  float* values_dev;
  uint64_t count;       // more than 0
  uint32_t group;       // 128 or 2048
  uint32_t stochastic;  // encode: 1 to round stochastically, 0 to nearest
  uint32_t noise[4];    // RoundingNoise::block(); unused if not stochastic
  uint64_t first;       // index of values_dev[0] in the noise, a multiple of 64
  unsigned char* section_dev;
};
// The mean of gradients, summed in the order of the parts (Sdp4bitMean of cuda_sdp4bit.h).
// parts_dev[own] has numbers that the kernel transforms; the other parts are sections.
inline constexpr uint32_t kSdp4bitMostParts = 64;
struct Sdp4bitSumArgs {
  const void* parts_dev[kSdp4bitMostParts];
  uint32_t parts, own;  // number of parts, index of the own one
  uint64_t count;       // number of values, more than 0; sections have up to 31 more
  float* out_dev;
};

// Select of codec/tagc/select.h. The scratch memory has the arrays of TagcSelectScratch, aligned to
// 16 bytes.
struct TagcSelectArgs {
  const float* values_dev;
  uint64_t count, keep;  // more than 0
  unsigned long long* bitmap_dev;
  unsigned char* scratch_dev;
};
// A matrix of codec/quantized/format.h. Both pointers are aligned to 16 bytes. `columns`: of a
// matrix in INT8; 0: it is in NF4. `bf16`: 1 to write bf16, 0 for fp32.
struct DequantizeArgs {
  const unsigned char* stored_dev;
  uint64_t elements;  // more than 0
  uint64_t columns;
  uint32_t bf16;
  void* out_dev;
};
// The kernels of the family X: `kernels` is the struct of codec/X/cuda/kernels.h, `name` its kName.
struct FamilyKernels {
  const char* name;
  const void* kernels;
};

struct KernelTable {
  // Writes the blob of an empty tensor, which is only a header.
  int (*write_header)(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
  const FamilyKernels* families;
  uint32_t family_count;
  // cuda_sdp4bit.h and cuda_tagc.h check the arguments of the next five functions. With `back`,
  // sdp4bit_transform undoes the transform.
  int (*sdp4bit_encode)(int device, const Sdp4bitArgs* args, void* stream);
  int (*sdp4bit_decode)(int device, const Sdp4bitArgs* args, void* stream);
  int (*sdp4bit_transform)(int device, float* values_dev, uint64_t count, bool back, void* stream);
  int (*sdp4bit_mean)(int device, const Sdp4bitSumArgs* args, void* stream);
  int (*tagc_select)(int device, const TagcSelectArgs* args, void* stream);
  // cuda_quantized.h checks the arguments.
  int (*dequantize)(int device, const DequantizeArgs* args, void* stream);
};

// kTagcRun: elements of a run, which one thread block of the selecting kernels handles. kTagcBins:
// bins of the histogram by which the kernels find the smallest magnitude to select (threshold).
inline constexpr uint64_t kTagcRun = 2048;
inline constexpr uint32_t kTagcBins = 2048;
// Byte offsets of arrays in the scratch memory for `count` values.
struct TagcSelectScratch {
  constexpr explicit TagcSelectScratch(uint64_t count)
      : histogram(16),
        equal(histogram + 4 * kTagcBins),
        end(equal + 4 * ((count + kTagcRun - 1) / kTagcRun)) {}
  // The first 16 bytes are a TagcChoice, the state of the search (module/tagc_select.cu).
  uint64_t histogram;  // kTagcBins uint32
  // uint32 for each run: first the number of the run's elements that equal the threshold in
  // magnitude. A later kernel replaces this number by the sum over all earlier runs.
  uint64_t equal;
  uint64_t end;
};

}  // namespace longhaul::codec::cuda
