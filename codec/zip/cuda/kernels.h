// Kernels of zip, and their arguments (codec/cuda/kernel_table.h says what all kernels promise).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct ZipArgs {
  TensorArgs tensor;
  HeaderArgs header;  // encode: the payload's bytes are those of the elements
  // zip::Layout
  uint64_t elements, groups;
  uint64_t lows, signs, codes, plane_bytes, escapes, raw, most_escapes;
  uint32_t may_be_smaller;
  // decode: of the blob, which is not the elements themselves; 0: what the blob's header says, and
  // at most `most_payload_bytes`, which are there
  uint64_t payload_bytes, most_payload_bytes;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: ZipScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents where the escapes are not what the codes say, with kFaultCut
  // where not all of the blob is there; then nothing is decoded
  uint32_t* fault_dev;
};

// Groups of a block of an encoder's first kernel, and of its last one.
inline constexpr uint64_t kZipGroups = 8, kZipFinishedGroups = 32;
// Groups whose escapes are counted together, and escapes of a group that have a slot.
inline constexpr uint64_t kZipCounted = 512, kZipSlot = 64;
// Bytes before `zeroed` begin as zeros.
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
  uint64_t slots;   // of each group its first kZipSlot escapes
  uint64_t counts;  // uint32: of each group
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
extern const ZipKernels kZipKernels;  // defined in the module alone

}  // namespace longhaul::codec::cuda
