#include "codec/taco/cpu/kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/convert.h"
#include "codec/parallel.h"
#include "codec/simd/elements.h"
#include "codec/taco/cpu/block_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/taco/cpu/kernels.cc"
#include <hwy/foreach_target.h>

#include "codec/taco/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::taco::cpu::HWY_NAMESPACE {

BlockKernels KernelsOf(Format format, uint32_t block) {
  switch (format) {
    case Format::kE4m3:
      return OfSize<Format::kE4m3>(block);
    case Format::kE5m2:
      return OfSize<Format::kE5m2>(block);
    default:
      return OfSize<Format::kInt8>(block);
  }
}

}  // namespace longhaul::codec::taco::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::taco::cpu {
HWY_EXPORT(KernelsOf);

namespace {

// In elements: what one thread does alone.
constexpr uint64_t kSmall = uint64_t{1} << 16;

BlockKernels Kernels(const Params& params) {
  LH_CHECK(Possible(params), "format {}, blocks of {}", static_cast<int>(params.format),
           params.block);
  return HWY_DYNAMIC_DISPATCH(KernelsOf)(params.format, params.block);
}

float ScaleOfBlock(const std::byte* payload, uint64_t block) {
  float c = 0;
  std::memcpy(&c, payload + 4 * block, sizeof(c));
  return c;
}

// Codes of the block to their place, and its scale. False: it has a NaN or an infinity.
bool EncodeTo(const BlockKernels& kernels, const Layout& layout, uint32_t size, uint64_t block,
              const float* values, float* scratch, std::byte* payload) {
  const float c = kernels.encode(values, scratch, payload + layout.codes + block * size);
  std::memcpy(payload + 4 * block, &c, sizeof(c));
  return !std::isnan(c);
}

void ZeroPadding(const Layout& layout, std::byte* payload) {
  std::fill(payload + 4 * layout.blocks, payload + layout.codes, std::byte{0});
}

// Calls body(block, offset of its first element, its elements) for all blocks.
template <class Body>
void ForBlocks(Parallel* parallel, const Layout& layout, uint32_t size, uint64_t elements,
               const Body& body) {
  ForRanges(parallel, layout.blocks, 1, kSmall / size, [&](uint64_t first, uint64_t end) {
    for (uint64_t block = first; block < end; ++block) {
      const uint64_t offset = block * size;
      body(block, offset, static_cast<size_t>(std::min<uint64_t>(size, elements - offset)));
    }
  });
}

// Without the limits of StoreElements; every NaN becomes the same.
void StoreSum(const float* values, size_t count, uint64_t offset, Dtype dtype, void* out) {
  for (size_t k = 0; k < count; ++k) {
    const float value = std::isnan(values[k]) ? std::bit_cast<float>(kNanBits) : values[k];
    if (dtype == Dtype::kF32) {
      static_cast<float*>(out)[offset + k] = value;
    } else {
      static_cast<uint16_t*>(out)[offset + k] =
          dtype == Dtype::kBf16 ? F32ToBf16(value) : F32ToF16(value);
    }
  }
}

}  // namespace

uint64_t Encode(const void* in, Dtype dtype, uint64_t elements, const Params& params,
                Parallel* parallel, std::byte* payload) {
  const BlockKernels kernels = Kernels(params);
  const Layout layout = MakeLayout(elements, params);
  const TensorView view{in, dtype, {}};
  std::atomic<uint64_t> nonfinite = 0;
  ForBlocks(parallel, layout, params.block, elements,
            [&](uint64_t block, uint64_t offset, size_t count) {
              alignas(64) float values[kMaxBlock];
              alignas(64) float scratch[kMaxBlock];
              LoadElements(view, offset, count, params.block, values);
              if (!EncodeTo(kernels, layout, params.block, block, values, scratch, payload)) {
                ++nonfinite;
              }
            });
  ZeroPadding(layout, payload);
  return nonfinite;
}

void Decode(const std::byte* payload, const Params& params, Parallel* parallel, void* out,
            Dtype dtype, uint64_t elements) {
  const BlockKernels kernels = Kernels(params);
  const Layout layout = MakeLayout(elements, params);
  const MutableTensorView view{out, dtype, {}};
  ForBlocks(parallel, layout, params.block, elements,
            [&](uint64_t block, uint64_t offset, size_t count) {
              alignas(64) float values[kMaxBlock];
              kernels.decode(payload + layout.codes + offset, ScaleOfBlock(payload, block), values);
              StoreElements(view, offset, count, values);
            });
}

void Reduce(const TacoReduceArgs& args, Parallel* parallel) {
  const BlockKernels kernels = Kernels(args.params);
  const Layout layout = MakeLayout(args.elements, args.params);
  const uint32_t size = args.params.block;
  const MutableTensorView out{args.out, args.dtype, {}};
  ForBlocks(parallel, layout, size, args.elements,
            [&](uint64_t block, uint64_t offset, size_t count) {
              alignas(64) float sum[kMaxBlock];
              alignas(64) float values[kMaxBlock];
              for (size_t part = 0; part < args.parts.size(); ++part) {
                float* const to = part == 0 ? sum : values;
                if (part == args.own) {
                  LoadElements({args.parts[part], args.dtype, {}}, offset, count, size, to);
                } else {
                  const auto* payload = static_cast<const std::byte*>(args.parts[part]);
                  kernels.decode(payload + layout.codes + offset, ScaleOfBlock(payload, block), to);
                  // What is decoded of a padding is about zero, and no part of the sum.
                  std::fill(to + count, to + size, 0.0f);
                }
                if (part == 0) continue;
                for (uint32_t k = 0; k < size; ++k) sum[k] += values[k];
              }
              if (args.out_payload.empty()) {
                StoreSum(sum, count, offset, args.dtype, args.out);
                return;
              }
              std::byte* const payload = args.out_payload.data();
              EncodeTo(kernels, layout, size, block, sum, values, payload);
              kernels.decode(payload + layout.codes + offset, ScaleOfBlock(payload, block), values);
              StoreElements(out, offset, count, values);
            });
  if (!args.out_payload.empty()) ZeroPadding(layout, args.out_payload.data());
}

}  // namespace longhaul::codec::taco::cpu
#endif  // HWY_ONCE
