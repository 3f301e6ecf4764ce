#include "codec/fixed/cpu/kernels.h"

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "codec/fixed/cpu/ranges.h"
#include "codec/parallel.h"
#include "codec/tile.h"

namespace longhaul::codec::fixed::cpu {
namespace {

constexpr int kTopExponent = 12;
// Tiles that are worked on together, and what one thread does alone (64 Ki elements of 64).
constexpr uint64_t kGrain = 16, kSmall = 1024;

}  // namespace

uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* payload) {
  LH_CHECK(params.bits >= kMinBits && params.bits <= kMaxBits, "{} bits", params.bits);
  const Layout layout = MakeLayout(in.shape, params);
  const RoundingNoise noise(context);
  std::memset(payload, 0, layout.scales);  // the paddings of the sections
  std::memset(payload + layout.codes - 16, 0, 16);
  std::memset(payload + layout.end - 16, 0, 16);
  const uint64_t tiles = in.shape.tokens * layout.tiles_per_token;  // of a sample
  std::atomic<uint64_t> nonfinite = 0;
  for (uint32_t sample = 0; sample < in.shape.samples; ++sample) {
    std::atomic<uint32_t> largest = 0;
    ForRanges(context.parallel, tiles, kGrain, kSmall, [&](uint64_t first, uint64_t end) {
      RaiseTo(LargestOfRange(in, params, {sample, first, end}), &largest);
    });
    const int exponent = SampleExponent(largest, kTopExponent);
    StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)), payload + 2 * sample);
    ForRanges(context.parallel, tiles, kGrain, kSmall, [&](uint64_t first, uint64_t end) {
      nonfinite += EncodeRange(in, params, noise, {sample, first, end}, exponent, payload);
    });
  }
  return nonfinite;
}

Status Decode(const std::byte* payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out) {
  LH_CHECK(params.bits >= kMinBits && params.bits <= kMaxBits, "{} bits", params.bits);
  const Layout layout = MakeLayout(out.shape, params);
  const uint64_t tiles = out.shape.tokens * layout.tiles_per_token;
  for (uint32_t sample = 0; sample < out.shape.samples; ++sample) {
    const auto exponent = static_cast<int16_t>(LoadU16(payload + 2 * sample));
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
    }
    ForRanges(parallel, tiles, kGrain, kSmall, [&](uint64_t first, uint64_t end) {
      DecodeRange(payload, params, {sample, first, end}, exponent, out);
    });
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::fixed::cpu
