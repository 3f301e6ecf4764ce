// NumPy's .npy files, as tensors for codecs need them: little-endian fp32 ('<f4') and fp16 ('<f2'),
// C order, 1 to 3 dimensions; bf16 as '<u2' if the caller says so. Reads versions 1 to 3 of the
// format, and writes version 1.
//
// Threads: pure functions. Errors: kInvalidArgument, naming what the file has and what can be read;
// files may be hostile.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec {

struct NpyArray {
  Dtype dtype = Dtype::kF32;
  Shape shape;  // (B, S, C); missing dimensions are leading ones
  AlignedBuffer data;

  TensorView view() const { return {data.span().data(), dtype, shape}; }
  MutableTensorView mutable_view() { return {data.span().data(), dtype, shape}; }
};

// `bf16`: reads '<u2' as bf16, and no other type.
StatusOr<NpyArray> ParseNpy(std::span<const std::byte> file, bool bf16);

// Returns a file's bytes; three dimensions.
std::string FormatNpy(const TensorView& tensor);

// kInvalidArgument if the shape is too large for memory.
StatusOr<NpyArray> MakeArray(Dtype dtype, const Shape& shape);

}  // namespace longhaul::codec
