// taco for collectives: flat buffers and payloads (format.h) without blob headers. These functions
// work on host memory; those of codec/cuda/cuda_taco.h do the same on a GPU, with the same bytes.
//
//   An all-reduce with two exchanges over n ranks. Each rank owns one chunk of the buffer:
//   1. TacoEncodeFlat of each other rank's chunk; send the payloads to the owners of the chunks.
//   2. TacoReduce of the own chunk's n parts; send the payload of the sum to all other ranks.
//   3. TacoDecodeFlat of each other rank's chunk.
//   All ranks end with the same bits: the owner's `out` is what the payload of the sum decodes to.
//
// Payloads: TacoPayloadBytes(elements, params) bytes at an address aligned to 16. The size is a
// multiple of 16, so payloads may be contiguous. Every byte is written, paddings as zeros. A
// payload does not describe itself: the decoder must know `elements` and `params`.
// Elements: at most 2^32 numbers of fp32, fp16 or bf16, aligned to the size of one. Blocks are
// counted from the first element of a buffer. If chunks of a buffer begin at multiples of
// params.block, they have the same blocks alone as in the whole buffer.
// Buffers must not overlap, with one exception that TacoReduceArgs names.
//
// Threads: pure functions. Each call may use the threads of `parallel` (null: none); they do not
// change the bytes. Calls never wait, and allocate only to report an error. Errors:
// kInvalidArgument for wrong sizes, null or misaligned pointers, before anything is written.
// Payloads may be hostile: a payload that no encoder writes decodes to any numbers or NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/taco/format.h"

namespace longhaul::codec {

inline constexpr size_t kTacoAlignment = 16;
inline constexpr size_t kMinTacoParts = 2, kMaxTacoParts = 64;

// Returns the size of a payload: 0 for no elements, else a multiple of 16. taco::Possible(params)
// must be true.
uint64_t TacoPayloadBytes(uint64_t elements, const taco::Params& params);

// Encodes `elements` numbers to the first TacoPayloadBytes of `payload`. Blocks with a NaN or an
// infinity will decode to NaN; their number is written to *nonfinite_blocks unless this is null.
Status TacoEncodeFlat(const void* in, Dtype dtype, uint64_t elements, const taco::Params& params,
                      std::span<std::byte> payload, Parallel* parallel = nullptr,
                      uint64_t* nonfinite_blocks = nullptr);

// Decodes to elements of `dtype`, which may differ from the dtype that was encoded. Values outside
// the range of `dtype` become its largest number.
Status TacoDecodeFlat(std::span<const std::byte> payload, const taco::Params& params, void* out,
                      Dtype dtype, uint64_t elements, Parallel* parallel = nullptr);

struct TacoReduceArgs {
  // kMinTacoParts to kMaxTacoParts pointers. parts[own] points to `elements` numbers of `dtype`.
  // All others point to payloads of TacoPayloadBytes(elements, params) bytes.
  std::span<const void* const> parts;
  static constexpr size_t kNoneIsOwn = ~size_t{0};  // value of `own` if all parts are payloads
  size_t own = 0;
  Dtype dtype = Dtype::kF32;
  uint64_t elements = 0;
  taco::Params params;
  // Memory for the payload of the sum. Empty: the sum is not encoded.
  std::span<std::byte> out_payload;
  // Memory for `elements` numbers of `dtype`. May be the same as parts[own].
  void* out = nullptr;
};

// Adds parts 0, 1, 2, ... in this order in fp32; payloads are decoded as by TacoDecodeFlat.
// With out_payload, encodes the sum there, and sets `out` to what this payload decodes to. Without
// out_payload, sets `out` to the sum, rounded to nearest even. Values too large for `dtype` then
// become infinities, as in a sum of plain numbers.
Status TacoReduce(const TacoReduceArgs& args, Parallel* parallel = nullptr);

}  // namespace longhaul::codec
