// fixed: symmetric fixed point with b bits for each element, and one scale for each tile.
//
// A tile is G contiguous channels of one token. The last tile of a token is padded with zeros if G
// does not divide the channels. T = samples x tokens x ceil(channels / G) tiles, in memory order.
// Every section starts at a multiple of 16 bytes, and its end is zero-padded to such a multiple:
//
//   payload section  bytes             contents
//   exponents        2 x samples       int16 c: the sample was multiplied by 2^c (scale.h)
//   scales           2 x T             fp16, >= 0; exponent all ones: a tile with NaN or infinity
//   codes            T x b x G / 8     for each tile b bit planes (planes.h) of q + 2^(b-1)
//
//   encoded bytes = 64 + Align16(2 samples) + Align16(2 T) + Align16(T b G / 8)
//
// Encoding, in fp32, each operation rounded once: v = x 2^c. c brings the sample's largest
// magnitude, over the tiles without NaN and infinity, into [2^12, 2^13). top = 2^(b-1) - 1.
//   Nearest:    scale = fp16(max|v| / top), to nearest even; u = v / scale (0 where scale is 0);
//               q = u rounded to nearest even, clamped to +-top.
//   Stochastic: scale = fp16(max|v| / top), rounded upwards, so that only rounding errors are
//               clamped. n = min(16, 23 - b). k is the element's random number (rounding.h), of
//               which the upper n bits are used: k' = floor(k 2^(n-16)).
//                 w = v (2^n / scale), 0 where scale is 0, clamped to +-top 2^n
//                 s = w + (2^23 + 2^(b-1) 2^n + k'), which rounds w to an integer
//                 q + 2^(b-1) = floor((s - 2^23) 2^-n)
//               In other words q = floor(u + r): u is w 2^-n rounded to a multiple of 2^-n, and
//               r = k' 2^-n is one of the 2^n multiples of 2^-n in [0, 1). So the mean of q is u.
//               u differs from w 2^-n by at most 2^-(n+1).
// Decoding: x = q scale 2^-c.
//
//   parameters in the header   offset size
//   bits b (3..10)                  0    1
//   rounding (0 or 1)               1    1
//   tile G (32, 64, 128)            2    2
//   zero                            4   12
#pragma once

#include <cstdint>
#include <string>

#include "codec/blob.h"
#include "codec/rounding.h"

namespace longhaul::codec::fixed {

inline constexpr CodecId kId{4};
inline constexpr uint32_t kMinBits = 3, kMaxBits = 10;

struct Params {
  uint32_t bits = 6;
  uint32_t tile = 64;
  Rounding rounding = Rounding::kNearest;
};

// Offsets count from the start of the payload.
struct Layout {
  uint64_t tiles_per_token = 0;
  uint64_t tiles = 0;       // of the tensor
  uint64_t tile_bytes = 0;  // size of a tile's codes
  uint64_t exponents = 0, scales = 0, codes = 0, end = 0;
};

// The shape must have passed CheckShape.
Layout MakeLayout(const Shape& shape, const Params& params);
// Returns the size of header and payload in bytes; 64 for an empty tensor.
uint64_t EncodedBytes(const Shape& shape, const Params& params);

// Returns the codec string: "fixed:bits=6,tile=64,rounding=nearest".
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Returns whether codec strings and headers may have these values.
bool Possible(const Params& params);

}  // namespace longhaul::codec::fixed
