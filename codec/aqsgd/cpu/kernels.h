// The arithmetic of aqsgd (format.h), a sample at a time, in portable C++ without fused
// multiply-add.
//
// `exponent` is c of format.h, `difference_exponent` is g, and `body` is the sample's part of the
// section of bodies. `message` and `updated` point to the elements of a record, behind its header.
//
// Threads: pure functions. Pointers to records and bodies are aligned to 16 bytes. No function can
// fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/aqsgd/format.h"
#include "codec/codec.h"

namespace longhaul::codec::aqsgd::cpu {

// One sample of a tensor, as input.
struct Sample {
  const TensorView& tensor;
  uint64_t index = 0;
};

struct Magnitudes {
  uint32_t largest = 0;    // bits of the largest finite magnitude
  uint64_t nonfinite = 0;  // number of elements
};
Magnitudes Measure(const Sample& sample);

// Writes h (format.h) of every element to `body`: tokens x channels fp16 values, then padding.
void EncodeWhole(const Sample& sample, int exponent, std::byte* body);
// Returns whether `count` fp16 values, of a body or of a record, are all finite.
bool AllFinite(const std::byte* halves, uint64_t count);

// Sets `largest[channel]` to max |d| over the sample's tokens, and to 0 from the last channel to
// the end of its tile. Returns the bits of the largest of all.
uint32_t MeasureDifference(const Sample& sample, int exponent, const std::byte* message,
                           float* largest);
// Writes codes of d to `body` and m' to `updated`, which may be `message` itself. Null: m' is not
// stored. `scales` has a float for each channel, and zeros up to the end of the last tile.
void EncodeDifference(const Sample& sample, int exponent, int difference_exponent,
                      const Params& params, const float* scales, const std::byte* message,
                      std::byte* updated, std::byte* body);
// Computes m' from the codes in `body`. Writes m' to `updated` (as above), and m' 2^-c, the decoded
// activation, to sample `index` of `out`.
void DecodeDifference(const std::byte* body, int exponent, int difference_exponent,
                      const Params& params, const float* scales, const std::byte* message,
                      std::byte* updated, uint64_t index, const MutableTensorView& out);
// Decodes a whole sample to sample `index` of `out`.
void DecodeWhole(const std::byte* body, int exponent, uint64_t index, const MutableTensorView& out);

}  // namespace longhaul::codec::aqsgd::cpu
