// Reads and writes NumPy's .npy files, as far as tensors for codecs need them: little-endian fp32
// ('<f4') and fp16 ('<f2'), C order, 1 to 3 dimensions. NumPy has no bf16, so bf16 is stored as
// uint16 ('<u2'). Reads versions 1 to 3 of the format, and writes version 1.
//
// Threads: pure functions. Errors: kInvalidArgument, naming what the file has and what can be read.
// Files may be hostile.
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
  Shape shape;  // of 3 dimensions; leading ones that the file lacks have size 1
  AlignedBuffer data;

  // Views of the elements, valid as long as the array.
  TensorView view() const { return {data.span().data(), dtype, shape}; }
  MutableTensorView mutable_view() { return {data.span().data(), dtype, shape}; }
};

// `bf16`: true accepts only '<u2', as bf16; false accepts only '<f4' and '<f2'.
StatusOr<NpyArray> ParseNpy(std::span<const std::byte> file, bool bf16);

// Returns the bytes of a .npy file with the tensor, in three dimensions. Cannot fail.
std::string FormatNpy(const TensorView& tensor);

// Allocates an array without setting its elements. kInvalidArgument for more than 2^32 elements.
StatusOr<NpyArray> MakeArray(Dtype dtype, const Shape& shape);

}  // namespace longhaul::codec
