// taco for collectives: flat buffers and payloads (format.h) without blob headers. These functions
// work on host memory. codec/cuda/cuda_taco.h has the same functions for a GPU, with the same
// bytes.
//
//   An all-reduce of two shots over n ranks, of which each owns a chunk of the buffer:
//   TacoEncodeFlat of every other rank's chunk; exchange; TacoReduce of the own chunk's n parts;
//   gather the payloads; TacoDecodeFlat of every other rank's chunk.
//   All ranks end with the same bits: the owner's `out` is what its payload decodes to.
//
// Payloads: TacoPayloadBytes(elements, params) bytes at an address aligned to 16. The size is a
// multiple of 16, so payloads may be contiguous. Every byte is written, paddings as zeros. A
// payload does not describe itself: the decoder must know elements and params. Elements: fp32, fp16
// or bf16, aligned to their size. At most 2^32. Blocks are counted from a buffer's first element:
// chunks that begin at multiples of params.block have the same blocks alone as in the whole buffer.
// Buffers do not overlap, except for one case that TacoReduceArgs names.
//
// Threads: pure functions; each call may use the threads of `parallel` (null: none), and the bytes
// are the same. Calls never wait, and allocate only if they fail. Errors: kInvalidArgument for
// wrong sizes, null or misaligned pointers, before anything is written. Payloads may have any
// content: one that no encoder writes decodes to some numbers or NaN.
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

// Returns 0 for no elements, else a multiple of 16. `params` must be taco::Possible.
uint64_t TacoPayloadBytes(uint64_t elements, const taco::Params& params);

// Encodes `elements` numbers to the first TacoPayloadBytes of `payload`. *nonfinite_blocks, unless
// null: the number of blocks with a NaN or an infinity, which decode to NaN.
Status TacoEncodeFlat(const void* in, Dtype dtype, uint64_t elements, const taco::Params& params,
                      std::span<std::byte> payload, Parallel* parallel = nullptr,
                      uint64_t* nonfinite_blocks = nullptr);

// Decodes; `dtype` may differ from the encoded one. Values outside its range become its largest
// number.
Status TacoDecodeFlat(std::span<const std::byte> payload, const taco::Params& params, void* out,
                      Dtype dtype, uint64_t elements, Parallel* parallel = nullptr);

struct TacoReduceArgs {
  // kMinTacoParts to kMaxTacoParts. parts[own] points to `elements` numbers of `dtype`; all others
  // to payloads of TacoPayloadBytes(elements, params).
  std::span<const void* const> parts;
  static constexpr size_t kNoneIsOwn = ~size_t{0};  // all are payloads
  size_t own = 0;
  Dtype dtype = Dtype::kF32;
  uint64_t elements = 0;
  taco::Params params;
  // The payload of the sum. Empty: the sum is not encoded.
  std::span<std::byte> out_payload;
  // `elements` numbers of `dtype`; may be parts[own].
  void* out = nullptr;
};

// Sums parts 0, 1, 2, ... in this order in fp32, payloads decoded as by TacoDecodeFlat. With
// out_payload: encodes the sum there, and `out` becomes the decoded value of that payload. Without:
// `out` becomes the sum, rounded to nearest even; values that are too large become infinities, as
// in a sum of plain numbers.
Status TacoReduce(const TacoReduceArgs& args, Parallel* parallel = nullptr);

}  // namespace longhaul::codec
