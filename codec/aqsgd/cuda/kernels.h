// Kernels of aqsgd, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/aqsgd/arithmetic.h"
#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct AqsgdArgs {
  TensorArgs tensor;
  // encode: has the largest payload size of the shape. The kernels replace it by the real size.
  HeaderArgs header;
  uint32_t bits;
  Divisor tiles_per_token, tokens;
  // From aqsgd::Layout.
  uint64_t checks, kinds, exponents, variable, scales_bytes, whole_bytes, difference_bytes;
  uint64_t record_bytes;
  uint64_t payload_bytes;  // decode: size of the blob's payload
  unsigned char* blob_dev;
  // One entry for each sample, in the order of the tensor. Null: the tensor has no ids, so no
  // sample has a record.
  const aqsgd::Entry* entries_dev;
  unsigned char* records_dev;  // as DeviceMessages::records (codec/cuda/device_codec.h)
  unsigned char* scratch_dev;  // AqsgdScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents if the payload is invalid or does not fit this side's records
  uint32_t* fault_dev;
};

// Byte offsets of arrays in the scratch memory. The encoder first zeroes all bytes before `zeroed`.
struct AqsgdScratch {
  constexpr AqsgdScratch(uint64_t samples, uint64_t channels)
      : nonfinite(0),
        largest(nonfinite + 8 * samples),
        largest_difference(largest + 4 * samples),
        maxima(largest_difference + 4 * samples),
        zeroed(maxima + 4 * samples * channels),
        bodies((zeroed + 7) / 8 * 8),
        kinds(bodies + 8 * samples),
        exponents(kinds + 4 * samples),
        scales((exponents + 4 * samples + 15) / 16 * 16),
        reciprocals(scales + 4 * Padded(channels)),
        end(reciprocals + 4 * Padded(channels)) {}
  static constexpr uint64_t Padded(uint64_t channels) {
    return (channels + aqsgd::kTile - 1) / aqsgd::kTile * aqsgd::kTile;
  }
  // For each sample, `nonfinite` has a uint64, the number of elements that are NaN or infinite. The
  // others have a uint32, the fp32 bits of the largest finite |x| and of the largest |d|.
  uint64_t nonfinite, largest, largest_difference;
  uint64_t maxima;  // uint32 for each channel of each sample: bits of the largest |d|
  uint64_t zeroed;
  uint64_t bodies;            // uint64 for each sample: offset of its body in the payload
  uint64_t kinds, exponents;  // uint32 and int32 for each sample
  // float for each channel, and padding to the end of the last tile
  uint64_t scales, reciprocals;
  uint64_t end;
};
inline uint64_t AqsgdScratchBytes(uint32_t samples, uint32_t channels) {
  return (AqsgdScratch(samples, channels).end + 63) / 64 * 64;
}

struct AqsgdKernels {
  static constexpr const char* kName = "aqsgd";
  int (*encode)(int device, const AqsgdArgs* args, void* stream);
  int (*decode)(int device, const AqsgdArgs* args, void* stream);
};
extern const AqsgdKernels kAqsgdKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
