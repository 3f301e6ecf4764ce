#include "codec/gauss/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "codec/gauss/cpu/block_kernels.h"
#include "codec/simd/elements.h"
#include "codec/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/gauss/cpu/kernels.cc"
#include <hwy/foreach_target.h>

#include "codec/gauss/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::gauss::cpu::HWY_NAMESPACE {

template <int kBits>
int16_t EncodeAny(const float* signs, size_t size, float* values, std::byte* planes) {
  const uint32_t largest = LargestMagnitude(values, size);
  if (largest > 0 && largest < kF32Infinity) {
    return EncodeBlock<kBits>(largest, signs, size, values, planes);
  }
  std::memset(planes, 0, kBits * size / 8);
  return largest == 0 ? kZeroIndex : kNonfiniteIndex;
}

template <int kBits>
void DecodeAny(const std::byte* planes, const BlockScale& scale, const float* signs, size_t size,
               float* values) {
  DecodeBlock<kBits>(planes, scale, signs, size, values);
}

BlockKernels KernelsOf(uint32_t bits) {
  switch (bits) {
    case 2:
      return {&EncodeAny<2>, &DecodeAny<2>};
    case 3:
      return {&EncodeAny<3>, &DecodeAny<3>};
    case 4:
      return {&EncodeAny<4>, &DecodeAny<4>};
    case 5:
      return {&EncodeAny<5>, &DecodeAny<5>};
    default:
      return {&EncodeAny<6>, &DecodeAny<6>};
  }
}

}  // namespace longhaul::codec::gauss::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::gauss::cpu {
HWY_EXPORT(KernelsOf);

namespace {

// kSigns as the sign bits of floats.
struct SignBits {
  constexpr SignBits() {
    for (uint32_t k = 0; k < kMaxBlock; ++k) {
      value[k] = ((kSigns[k / 32] >> (k % 32)) & 1) != 0 ? -0.0f : 0.0f;
    }
  }
  alignas(64) float value[kMaxBlock] = {};
};
constexpr SignBits kSignBits;

// A block of a sample, in the order in which they are stored.
struct Place {
  uint64_t index = 0;   // in the sample
  uint64_t offset = 0;  // of its first element in the tensor
  size_t count = 0;     // elements that are not padding
  uint32_t size = 0;
  uint64_t planes = 0;  // in the payload
};

template <class Function>
void ForEachBlock(const Shape& shape, const Layout& layout, uint32_t block, uint32_t sample,
                  Function&& function) {
  Place place;
  for (uint64_t token = 0; token < shape.tokens; ++token) {
    const uint64_t row = sample * uint64_t{shape.tokens} + token;
    place.planes = layout.codes + row * layout.token_bytes;
    for (uint64_t j = 0; j < layout.token_blocks; ++j, ++place.index) {
      place.size = j + 1 < layout.token_blocks ? block : layout.last_block;
      place.offset = row * shape.channels + j * block;
      place.count = std::min<uint64_t>(block, shape.channels - j * block);
      function(place);
      place.planes += layout.block_bytes;
    }
  }
}

BlockKernels Kernels(const Params& params) {
  LH_CHECK(Possible(params), "{} bits, blocks of {}", params.bits, params.block);
  return HWY_DYNAMIC_DISPATCH(KernelsOf)(params.bits);
}

}  // namespace

uint64_t ScratchBytes(const Layout& layout) {
  return layout.blocks * sizeof(int16_t);
}

uint64_t Encode(const TensorView& in, const Params& params, std::byte* scratch,
                std::byte* payload) {
  const BlockKernels kernels = Kernels(params);
  const Layout layout = MakeLayout(in.shape, params);
  // The paddings of the sections.
  for (const uint64_t end : {layout.scales, layout.codes, layout.end}) {
    std::memset(payload + end - 16, 0, 16);
  }
  auto* indexes = reinterpret_cast<int16_t*>(scratch);
  alignas(64) float values[kMaxBlock];
  uint64_t nonfinite = 0;
  for (uint32_t sample = 0; sample < in.shape.samples; ++sample) {
    int largest = kZeroIndex;
    ForEachBlock(in.shape, layout, params.block, sample, [&](const Place& place) {
      LoadElements(in, place.offset, place.count, place.size, values);
      const int16_t q = kernels.encode(kSignBits.value, place.size, values, payload + place.planes);
      indexes[place.index] = q;
      if (q == kNonfiniteIndex) {
        ++nonfinite;
      } else {
        largest = std::max<int>(largest, q);
      }
    });
    const int exponent = largest == kZeroIndex ? 0 : ExponentOf(largest);
    StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)),
             payload + layout.exponents + 2 * uint64_t{sample});
    std::byte* scales = payload + layout.scales + sample * layout.blocks;
    for (uint64_t index = 0; index < layout.blocks; ++index) {
      scales[index] = static_cast<std::byte>(ScaleByte(indexes[index], exponent));
    }
  }
  return nonfinite;
}

Status Decode(const std::byte* payload, const Params& params, const MutableTensorView& out) {
  const BlockKernels kernels = Kernels(params);
  const Layout layout = MakeLayout(out.shape, params);
  alignas(64) float values[kMaxBlock];
  for (uint32_t sample = 0; sample < out.shape.samples; ++sample) {
    const auto exponent =
        static_cast<int16_t>(LoadU16(payload + layout.exponents + 2 * uint64_t{sample}));
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
    }
    const std::byte* scales = payload + layout.scales + sample * layout.blocks;
    ForEachBlock(out.shape, layout, params.block, sample, [&](const Place& place) {
      const auto byte = static_cast<uint8_t>(scales[place.index]);
      if (byte == kNonfiniteBlock) {
        FillNan<kMaxBlock>(values);
      } else if (byte == kZeroBlock) {
        std::fill_n(values, kMaxBlock, 0.0f);
      } else {
        const int log2_size = std::bit_width(place.size) - 1;
        kernels.decode(payload + place.planes, BlockScale(byte, exponent, log2_size),
                       kSignBits.value, place.size, values);
      }
      StoreElements(out, place.offset, place.count, values);
    });
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::gauss::cpu
#endif  // HWY_ONCE
