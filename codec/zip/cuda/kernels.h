// Kernels of zip, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct ZipArgs {
  TensorArgs tensor;
  HeaderArgs header;  // encode: the payload's bytes are the elements' bytes
  // zip::Layout
  uint64_t elements, groups;
  uint64_t lows, signs, codes, plane_bytes, escapes, raw, most_escapes;
  uint32_t may_be_smaller;
  // decode: size of a payload that is coded. 0: the blob's header has the size; the memory ends
  // after `most_payload_bytes`.
  uint64_t payload_bytes, most_payload_bytes;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: ZipScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents if escapes and codes disagree, with kFaultCut if the blob is
  // cut short. Then nothing is decoded.
  uint32_t* fault_dev;
};

// Groups that one thread block handles in the encoder's first kernel, and in its last one.
inline constexpr uint64_t kZipGroups = 8, kZipFinishedGroups = 32;
// Groups whose escapes are counted together, and escapes of a group that have a slot.
inline constexpr uint64_t kZipCounted = 512, kZipSlot = 64;
// Offsets into the encoder's scratch memory. The bytes before `zeroed` must be zero at its start.
struct ZipScratch {
  constexpr explicit ZipScratch(uint64_t groups)
      : sums(16),
        zeroed(sums + 8 * ((groups + kZipCounted - 1) / kZipCounted)),
        slots((zeroed + 63) / 64 * 64),
        counts(slots + kZipSlot * groups),
        end(counts + 4 * groups) {}
  uint64_t nonfinite = 8;  // uint64: elements
  uint64_t sums;           // uint64: escapes of kZipCounted groups
  uint64_t zeroed;
  uint64_t slots;   // first kZipSlot escapes of each group
  uint64_t counts;  // uint32, one a group
  uint64_t end;
};
constexpr uint64_t ZipScratchBytes(uint64_t groups) {
  return (ZipScratch(groups).end + 63) / 64 * 64;
}

struct ZipKernels {
  static constexpr const char* kName = "zip";
  int (*encode)(int device, const ZipArgs* args, void* stream);
  int (*decode)(int device, const ZipArgs* args, void* stream);
};
extern const ZipKernels kZipKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
