// taco for collectives: flat buffers and payloads (format.h) without blob headers. These functions
// work on host memory; those of codec/cuda/cuda_taco.h do the same on a GPU, with the same bytes.
//
//   An all-reduce with two exchanges over n ranks. Each rank owns one of n chunks of the buffer,
//   and does the following:
//   1. TacoEncodeFlat each chunk of another rank, and send the payload to the owner of the chunk.
//   2. TacoReduce the n parts of the own chunk, and send the payload of the sum to all other ranks.
//   3. TacoDecodeFlat the payloads of the other ranks' sums.
//   All ranks end with the same bits: the owner's `out` is what the payload of the sum decodes to.
//
// Payloads: TacoPayloadBytes(elements, params) bytes at an address aligned to 16. The size is a
// multiple of 16, so payloads may be contiguous. Every byte is written, paddings as zeros. A
// payload does not describe itself: the decoder must know `elements` and `params`.
// Elements: at most 2^32 numbers of fp32, fp16 or bf16, aligned to the size of a number. Blocks are
// counted from the first element of a call. A chunk that begins at a multiple of params.block in a
// buffer is cut into the same blocks alone as within the whole buffer.
// Buffers must not overlap, except that TacoReduceArgs::out may be the own part.
//
// Threads: pure functions. Each call may use the threads of `parallel` (null: none), and waits for
// nothing but these threads. The bytes do not depend on them. Calls allocate only to report an
// error. Errors: kInvalidArgument for wrong sizes, null or misaligned pointers, before anything is
// written. Payloads may be hostile: a payload that no encoder writes decodes to any numbers or NaN.
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

// Encodes `elements` numbers to the first TacoPayloadBytes of `payload`. A block with a NaN or an
// infinity will decode to all NaN. The number of such blocks is written to *nonfinite_blocks unless
// the pointer is null.
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
  // Memory for `elements` numbers of `dtype`. May be the memory of parts[own].
  void* out = nullptr;
};

// Adds parts 0, 1, 2, ... in this order in fp32; payloads are first decoded to fp32. With
// out_payload, encodes the sum to out_payload, and sets `out` to what this payload decodes to.
// Without out_payload, sets `out` to the sum, rounded to nearest even; then values too large for
// `dtype` become infinities, as in a sum of plain numbers.
Status TacoReduce(const TacoReduceArgs& args, Parallel* parallel = nullptr);

}  // namespace longhaul::codec
