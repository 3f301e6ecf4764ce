// Kernels of none, bf16 and fp16, and their arguments (codec/cuda/kernel_table.h: the contract of
// all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct PlainArgs {
  TensorArgs tensor;
  HeaderArgs header;    // encode
  uint32_t wire_dtype;  // dtype of the elements in the payload
  unsigned char* blob_dev;
};

struct PlainKernels {
  static constexpr const char* kName = "plain";
  int (*encode)(int device, const PlainArgs* args, void* stream);
  int (*decode)(int device, const PlainArgs* args, void* stream);
};
extern const PlainKernels kPlainKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
