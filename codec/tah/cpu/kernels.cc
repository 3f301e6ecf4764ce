#include "codec/tah/cpu/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "codec/parallel.h"
#include "codec/tah/cpu/bits.h"
#include "codec/tah/cpu/ranges.h"
#include "codec/tile.h"

namespace longhaul::codec::tah::cpu {
namespace {

// Tiles: what one thread does alone (64 Ki elements of 64).
constexpr uint64_t kSmall = 1024;

// Where ranges may begin: at whole batches, with whole allocation tiles.
uint64_t Grain(const Layout& layout) {
  return layout.alloc_tiles == 1 ? 16 : 16 * layout.token_tiles;
}

// What is written bit by bit, and the paddings at the sections' ends.
void ZeroGaps(const Layout& layout, std::byte* payload) {
  for (const uint64_t end : {layout.scales, layout.zeros, layout.pivots, layout.fourth_bits}) {
    std::memset(payload + end - 16, 0, 16);
  }
  std::memset(payload + layout.pivots, 0, layout.codes - layout.pivots);
  if (layout.end > layout.fourth_bits) std::memset(payload + layout.end - 16, 0, 16);
}

}  // namespace

uint64_t ScratchBytes(const Layout& layout) {
  return layout.allocs * sizeof(int32_t);
}

uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* scratch, std::byte* payload) {
  const Layout layout = MakeLayout(in.shape, params);
  const RoundingNoise noise(context);
  const bool choose = layout.fours > 0 && layout.fours < layout.allocs;
  auto* const keys = choose ? reinterpret_cast<int32_t*>(scratch) : nullptr;
  ZeroGaps(layout, payload);
  std::atomic<uint64_t> nonfinite = 0;
  for (uint32_t sample = 0; sample < in.shape.samples; ++sample) {
    std::atomic<uint32_t> largest = 0;
    ForRanges(context.parallel, layout.tiles, Grain(layout), kSmall,
              [&](uint64_t first, uint64_t end) {
                RaiseTo(SurveyRange(in, layout, {sample, first, end}, keys), &largest);
              });
    std::byte* const precision = payload + layout.precision + sample * layout.precision_bytes;
    if (choose) {
      MarkFours(keys, layout.allocs, layout.fours, precision);
    } else {
      for (uint64_t alloc = 0; alloc < layout.fours; ++alloc) SetBit(precision, alloc);
    }
    const int exponent = SampleExponent(largest, TopExponent(params));
    StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)),
             payload + layout.exponents + 2 * uint64_t{sample});
    ForRanges(context.parallel, layout.tiles, Grain(layout), kSmall,
              [&](uint64_t first, uint64_t end) {
                nonfinite +=
                    EncodeRange(in, params, layout, noise, {sample, first, end}, exponent, payload);
              });
  }
  return nonfinite;
}

Status Decode(const std::byte* payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out) {
  const Layout layout = MakeLayout(out.shape, params);
  for (uint32_t sample = 0; sample < out.shape.samples; ++sample) {
    const auto exponent =
        static_cast<int16_t>(LoadU16(payload + layout.exponents + 2 * uint64_t{sample}));
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
    }
    if (!PrecisionFits(layout, payload + layout.precision + sample * layout.precision_bytes)) {
      return absl::InvalidArgumentError(
          "the blob's precision bits do not mark as many tiles as its parameters and shape say");
    }
    ForRanges(parallel, layout.tiles, Grain(layout), kSmall, [&](uint64_t first, uint64_t end) {
      DecodeRange(payload, layout, {sample, first, end}, exponent, out);
    });
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::tah::cpu
