// The kernels of dither and their arguments. codec/cuda/kernel_table.h says what all kernels
// promise.
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct DitherArgs {
  TensorArgs tensor;
  HeaderArgs header;  // encode: with the largest size that the payload may have
  uint32_t half_bits, block;
  // As in dither::Layout.
  uint32_t last_block;
  Divisor token_blocks;
  uint64_t token_elements, blocks, groups, group_words;
  uint64_t ends, exponents, states, words;
  uint32_t noise[4];  // encode: RoundingNoise::block()
  // decode: the size of the payload. 0: the kernel reads the size from the blob's header. The
  // memory for the payload has `most_payload_bytes`.
  uint64_t payload_bytes, most_payload_bytes;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: DitherScratch, aligned to 64 bytes
  // decode: the kernel sets kFaultContents if no encoder writes the payload, and kFaultCut if the
  // blob is cut short. Damaged groups decode to NaN. If the size is wrong, no group is decoded.
  uint32_t* fault_dev;
};

// The encoder sums the words of this many groups in one counter.
inline constexpr uint64_t kDitherCounted = 512;
// Offsets in the encoder's scratch memory. The encoder sets the bytes before `zeroed` to zero.
struct DitherScratch {
  constexpr DitherScratch(uint64_t groups, uint64_t group_words)
      : zeroed(8 * ((groups + kDitherCounted - 1) / kDitherCounted)),
        counts((zeroed + 63) / 64 * 64),
        words((counts + 4 * groups + 63) / 64 * 64),
        end(words + 2 * groups * group_words) {}
  uint64_t sums = 0;  // uint64: number of words of kDitherCounted groups
  uint64_t zeroed;
  uint64_t counts;  // uint32: number of words of each group
  uint64_t words;   // uint16: words of each group, group_words apart
  uint64_t end;
};
constexpr uint64_t DitherScratchBytes(uint64_t groups, uint64_t group_words) {
  return (DitherScratch(groups, group_words).end + 63) / 64 * 64;
}

struct DitherKernels {
  static constexpr const char* kName = "dither";
  int (*encode)(int device, const DitherArgs* args, void* stream);
  int (*decode)(int device, const DitherArgs* args, void* stream);
};
extern const DitherKernels kDitherKernels;  // defined in the module alone

}  // namespace longhaul::codec::cuda
