// Kernels of taco, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// Elements and a payload of taco, without a header.
struct TacoFlatArgs {
  void* elements_dev;
  uint32_t dtype;
  uint32_t format, block;      // taco::Params
  uint64_t elements;           // more than 0
  uint64_t blocks, codes;      // taco::Layout
  float largest, unit;         // taco::LargestNumber, taco::UnitOf
  unsigned char* payload_dev;  // aligned to 16 bytes
  // encode: the number of blocks with a NaN or an infinity is added to this word. Null: these
  // blocks are not counted.
  unsigned long long* nonfinite_dev;
};

struct TacoArgs {
  // flat.payload_dev points behind the blob's header. In an encoder, flat.nonfinite_dev points to
  // the count of blocks in the header.
  TacoFlatArgs flat;
  HeaderArgs header;  // encode
  unsigned char* blob_dev;
};

inline constexpr uint32_t kTacoMostParts = 64;
struct TacoSumArgs {
  // The parts to add. parts_dev[own] points to elements, all others point to payloads.
  const void* parts_dev[kTacoMostParts];
  uint32_t parts, own;  // number of parts; index of the part with elements, or >= parts if none is
  // elements_dev: the output. payload_dev: the payload of the sum; null: the sum is not encoded.
  TacoFlatArgs flat;
};

struct TacoKernels {
  static constexpr const char* kName = "taco";
  int (*encode)(int device, const TacoArgs* args, void* stream);
  int (*decode)(int device, const TacoArgs* args, void* stream);
  // For payloads without headers (codec/taco/flat.h). cuda_taco.h checks the arguments.
  int (*encode_flat)(int device, const TacoFlatArgs* args, void* stream);
  int (*decode_flat)(int device, const TacoFlatArgs* args, void* stream);
  int (*reduce)(int device, const TacoSumArgs* args, void* stream);
};
extern const TacoKernels kTacoKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
