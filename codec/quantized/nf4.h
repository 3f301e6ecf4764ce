// Quantizes and dequantizes matrices in NF4 (format.h), on the CPU.
//
// Follows bitsandbytes 0.50: functional.quantize_4bit(blocksize=64, compress_statistics=True,
// quant_type="nf4") and functional.dequantize_4bit, with the operators of backends/default/ops.py.
// Two numbers differ between the backends of bitsandbytes themselves:
//   - The mean of the absmax. PyTorch's sum depends on the number of threads and on the device.
//   Here
//     the sum is in double, so that the mean is the same on every machine.
//   - The codes of absmax. On a CPU bitsandbytes searches a coarse table. Here, as in the default
//     backend, a code is the nearest one.
//
// Threads: pure functions. Functions of disjoint ranges may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul::codec::quantized {

// Quantizes the elements of the blocks [first_block, end_block) of a matrix, and stores their
// levels and absmax. `values`: the elements of the whole matrix. `absmax`: room for one number for
// each block of the matrix. `stored`: Nf4Layout(values.size()).bytes bytes. Returns false if an
// element is infinite or not a number; then all results are void.
bool Nf4QuantizeBlocks(std::span<const float> values, uint64_t first_block, uint64_t end_block,
                       std::span<float> absmax, std::byte* stored);
// Returns the mean of all absmax; 0 if there are none.
float Nf4MeanOfAbsmax(std::span<const float> absmax);
// Stores `mean`, and the codes of the blocks' absmax.
void Nf4StoreAbsmax(std::span<const float> absmax, float mean, uint64_t elements,
                    std::byte* stored);
// The three functions above, on this thread.
bool Nf4Quantize(std::span<const float> values, std::byte* stored);

// Dequantizes the elements of the blocks [first_block, end_block) of a matrix of `elements`. `out`:
// room for the whole matrix; as fp32, or as the bits of bf16.
void Nf4Dequantize(const std::byte* stored, uint64_t elements, uint64_t first_block,
                   uint64_t end_block, float* out);
void Nf4Dequantize(const std::byte* stored, uint64_t elements, uint64_t first_block,
                   uint64_t end_block, uint16_t* out);

}  // namespace longhaul::codec::quantized
