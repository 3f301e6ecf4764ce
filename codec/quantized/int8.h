// Quantizes and dequantizes matrices in INT8 (format.h), on the CPU.
//
// Follows bitsandbytes 0.50: nn.Int8Params, which rounds to fp16 and calls
// functional.int8_vectorwise_quant; and functional.int8_vectorwise_dequant. All columns are stored
// so (threshold 0).
//
// Threads: pure functions. Functions of disjoint ranges may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul::codec::quantized {

struct MatrixShape {
  uint64_t rows = 0, columns = 0;
};

// Quantizes the rows [first_row, end_row). `values`: the elements of the whole matrix. `stored`:
// Int8Layout(rows, columns).bytes bytes. Returns false if an element is not finite in fp16, whose
// largest number is 65504; then all results are void.
bool Int8Quantize(std::span<const float> values, MatrixShape shape, uint64_t first_row,
                  uint64_t end_row, std::byte* stored);

// Dequantizes the rows [first_row, end_row). `out`: room for the whole matrix; as fp32, or as the
// bits of bf16.
void Int8Dequantize(const std::byte* stored, MatrixShape shape, uint64_t first_row,
                    uint64_t end_row, float* out);
void Int8Dequantize(const std::byte* stored, MatrixShape shape, uint64_t first_row,
                    uint64_t end_row, uint16_t* out);

}  // namespace longhaul::codec::quantized
