#include "codec/gauss/cpu/kernels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/gauss/cpu/block.h"

namespace longhaul::codec::gauss::cpu {
namespace {

// The kernels of a block by its size and bits.
struct BlockKernels {
  int16_t (*encode)(const TensorView& in, uint64_t offset, int count, std::byte* planes);
  void (*decode)(const std::byte* planes, uint8_t byte, int exponent, const MutableTensorView& out,
                 uint64_t offset, int count);
};

template <int kBits, int kSize>
constexpr BlockKernels kKernels = {&EncodeBlock<kBits, kSize>, &DecodeBlock<kBits, kSize>};

template <int kSize>
BlockKernels KernelsOfSize(uint32_t bits) {
  switch (bits) {
    case 2:
      return kKernels<2, kSize>;
    case 3:
      return kKernels<3, kSize>;
    case 4:
      return kKernels<4, kSize>;
    case 5:
      return kKernels<5, kSize>;
    default:
      return kKernels<6, kSize>;
  }
}

BlockKernels KernelsOf(uint32_t bits, uint32_t size) {
  LH_CHECK(Possible({.bits = bits, .block = size}), "{} bits, a block of {}", bits, size);
  switch (size) {
    case 64:
      return KernelsOfSize<64>(bits);
    case 128:
      return KernelsOfSize<128>(bits);
    case 256:
      return KernelsOfSize<256>(bits);
    default:
      return KernelsOfSize<512>(bits);
  }
}

// What both directions know of the blocks.
struct Blocks {
  Blocks(const Shape& of, const Params& params)
      : shape(of),
        layout(MakeLayout(of, params)),
        block(params.block),
        whole(KernelsOf(params.bits, params.block)),
        last(KernelsOf(params.bits, layout.last_block)) {}

  // Calls function(kernels, block of the sample, offset of its first element, elements that are not
  // padding, offset of its planes in the payload) for a sample's blocks in their order.
  template <class Function>
  void ForEach(uint32_t sample, Function&& function) const {
    uint64_t index = 0;
    for (uint64_t token = 0; token < shape.tokens; ++token) {
      const uint64_t row = sample * uint64_t{shape.tokens} + token;
      uint64_t planes = layout.codes + row * layout.token_bytes;
      for (uint64_t j = 0; j < layout.token_blocks; ++j, ++index, planes += layout.block_bytes) {
        const uint64_t channel = j * block;
        const auto count = static_cast<int>(std::min(block, shape.channels - channel));
        function(j + 1 < layout.token_blocks ? whole : last, index, row * shape.channels + channel,
                 count, planes);
      }
    }
  }

  const Shape shape;
  const Layout layout;
  const uint64_t block;
  const BlockKernels whole, last;
};

}  // namespace

uint64_t ScratchBytes(const Layout& layout) {
  return layout.blocks * sizeof(int16_t);
}

uint64_t Encode(const TensorView& in, const Params& params, std::byte* scratch,
                std::byte* payload) {
  const Blocks blocks(in.shape, params);
  const Layout& layout = blocks.layout;
  // The paddings of the sections.
  for (const uint64_t end : {layout.scales, layout.codes, layout.end}) {
    std::memset(payload + end - 16, 0, 16);
  }
  auto* indexes = reinterpret_cast<int16_t*>(scratch);
  uint64_t nonfinite = 0;
  for (uint32_t sample = 0; sample < in.shape.samples; ++sample) {
    int largest = kZeroIndex;
    blocks.ForEach(sample, [&](const BlockKernels& kernels, uint64_t index, uint64_t offset,
                               int count, uint64_t planes) {
      const int16_t q = kernels.encode(in, offset, count, payload + planes);
      indexes[index] = q;
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
  const Blocks blocks(out.shape, params);
  for (uint32_t sample = 0; sample < out.shape.samples; ++sample) {
    const auto exponent =
        static_cast<int16_t>(LoadU16(payload + blocks.layout.exponents + 2 * uint64_t{sample}));
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
    }
    const std::byte* scales = payload + blocks.layout.scales + sample * blocks.layout.blocks;
    blocks.ForEach(sample, [&](const BlockKernels& kernels, uint64_t index, uint64_t offset,
                               int count, uint64_t planes) {
      kernels.decode(payload + planes, static_cast<uint8_t>(scales[index]), exponent, out, offset,
                     count);
    });
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::gauss::cpu
