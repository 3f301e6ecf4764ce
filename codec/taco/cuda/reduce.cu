#include "codec/cuda/module/kernels.cuh"
#include "codec/taco/cuda/block.cuh"
#include "codec/taco/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// A part in fp32: what TacoDecodeFlat makes of it, with zeros behind the last element.
template <Format kFormat, uint32_t kDtype>
__device__ inline void LoadPart(const TacoSumArgs& args, const TacoPlace& place, uint32_t part,
                                TacoValues& values) {
  const void* const data = args.parts_dev[part];
  if (part == args.own) {
    LoadTaco<kDtype>(data, place, values);
    return;
  }
  const auto* const payload = static_cast<const unsigned char*>(data);
  TacoCodes codes;
  LoadTacoCodes(payload, args.flat.codes, place, codes);
  const float c = reinterpret_cast<const float*>(payload)[place.block];
  const bool numbers = NumbersOfTaco<kFormat>(place, codes, c, values);
  ScaleTaco(c, FLT_MAX, args.flat.unit, values);
  if (!numbers) {
#pragma unroll
    for (float& value : values) value = __uint_as_float(taco::kNanBits);
  }
  if (!place.Whole()) {
#pragma unroll
    for (int k = 0; k < kTacoOfLane; ++k) {
      if (place.RunBegin(k / kTacoRun) + k % kTacoRun >= place.count) values[k] = 0;
    }
  }
}

template <Format kFormat, uint32_t kDtype>
__device__ inline void SumParts(const TacoSumArgs& args, const TacoPlace& place, TacoValues& sum) {
  // What -0 is added to stays as it is.
#pragma unroll
  for (float& value : sum) value = -0.0f;
#pragma unroll 1
  for (uint32_t part = 0; part < args.parts; ++part) {
    TacoValues values;
    LoadPart<kFormat, kDtype>(args, place, part, values);
#pragma unroll
    for (int k = 0; k < kTacoOfLane; ++k) sum[k] = sum[k] + values[k];
  }
}

template <Format kFormat, uint32_t kDtype, uint32_t kLanes>
__global__ void __launch_bounds__(kTacoThreads, 5)
    TacoReduceKernel(const __grid_constant__ TacoSumArgs args) {
  const TacoFlatArgs& flat = args.flat;
  const TacoPlace place(flat, kLanes);
  TacoCodes codes;
  const TacoScale scale = EncodeTacoBlock<kFormat>(
      flat, place, [&](TacoValues& values) { SumParts<kFormat, kDtype>(args, place, values); },
      codes);
  StoreTacoBlock(flat, place, scale.c, codes);
  TacoValues values;
  const bool numbers = NumbersOfTaco<kFormat>(place, codes, scale.c, values);
  StoreDecoded<kDtype>(flat.elements_dev, place, numbers, scale.c, flat.unit, values);
}

template <Format kFormat, uint32_t kDtype, uint32_t kLanes>
__global__ void __launch_bounds__(kTacoThreads, 5)
    TacoSumKernel(const __grid_constant__ TacoSumArgs args) {
  const TacoPlace place(args.flat, kLanes);
  TacoValues sum;
  SumParts<kFormat, kDtype>(args, place, sum);
  float largest = 0;
#pragma unroll
  for (const float value : sum) largest = LargerOrNan(largest, fabsf(value));
  const bool nan = !(largest >= 0);
  if (nan) {
    // All NaNs become the same one.
#pragma unroll
    for (float& value : sum) value = isnan(value) ? __uint_as_float(taco::kNanBits) : value;
  }
  StoreTaco<kDtype>(args.flat.elements_dev, place, /*one_by_one=*/nan, sum);
}

}  // namespace

int ReduceTaco(int device, const TacoSumArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const unsigned blocks = TacoThreadBlocks(args->flat);
  const auto handle = static_cast<cudaStream_t>(stream);
  return OfTaco(args->flat, [&]<Format kFormat, uint32_t kDtype, uint32_t kLanes>() {
    if (args->flat.payload_dev == nullptr) {
      TacoSumKernel<kFormat, kDtype, kLanes><<<blocks, kTacoThreads, 0, handle>>>(*args);
    } else {
      TacoReduceKernel<kFormat, kDtype, kLanes><<<blocks, kTacoThreads, 0, handle>>>(*args);
    }
    return Launched();
  });
}

}  // namespace longhaul::codec::cuda
