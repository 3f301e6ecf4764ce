// Kernels of zip, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct ZipArgs {
  TensorArgs tensor;
  // Encode: the payload size in the header is `raw`. The kernels replace the size if the payload is
  // smaller.
  HeaderArgs header;
  // From zip::Layout.
  uint64_t elements, groups;
  uint64_t lows, signs, codes, plane_bytes, escapes, raw, most_escapes;
  uint32_t may_be_smaller;
  // Decode: the payload's size, which must differ from `raw`. 0: the host does not know the size,
  // so the kernel reads it from the blob's header. The memory behind the header has
  // `most_payload_bytes`, which is used only in this case.
  uint64_t payload_bytes, most_payload_bytes;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: ZipScratch, aligned to 64 bytes
  // Decode: or-ed with kFaultContents if escapes and codes disagree in a group; the group becomes
  // NaN. Or-ed with kFaultCut if the blob is longer than the memory; then nothing is decoded.
  uint32_t* fault_dev;
};

// Number of groups that a thread block handles in the encoder's first kernel, and in its last one.
inline constexpr uint64_t kZipGroups = 8, kZipFinishedGroups = 32;
// kZipCounted: number of groups whose escapes are counted in one sum. kZipSlot: maximum number of a
// group's escapes that the first kernel stores for the last one.
inline constexpr uint64_t kZipCounted = 512, kZipSlot = 64;
// Byte offsets in the encoder's scratch memory. The encoder first zeroes the bytes before `zeroed`.
struct ZipScratch {
  constexpr explicit ZipScratch(uint64_t groups)
      : sums(16),
        zeroed(sums + 8 * ((groups + kZipCounted - 1) / kZipCounted)),
        slots((zeroed + 63) / 64 * 64),
        counts(slots + kZipSlot * groups),
        end(counts + 4 * groups) {}
  uint64_t nonfinite = 8;  // uint64: number of elements that are not finite
  uint64_t sums;           // uint64 for each kZipCounted groups: number of their escapes
  uint64_t zeroed;
  uint64_t slots;   // kZipSlot bytes for each group: its first escapes
  uint64_t counts;  // uint32 for each group: number of its escapes
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
