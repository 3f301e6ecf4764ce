#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/taco_block.cuh"

namespace longhaul::codec::cuda {
namespace {

// A part in fp32: what TacoDecodeFlat makes of it, with zeros behind the last element.
template <Format kFormat>
__device__ inline void LoadPart(const TacoSumArgs& args, const TacoPlace& place, uint32_t part,
                                TacoValues& values) {
  const void* const data = args.parts_dev[part];
  if (part == args.own) {
    LoadTaco(data, args.flat.dtype, place, values);
    return;
  }
  const auto* const payload = static_cast<const unsigned char*>(data);
  TacoCodes codes;
  LoadTacoCodes(payload, args.flat.codes, place, codes);
  const float c = place.there ? reinterpret_cast<const float*>(payload)[place.block] : 0.0f;
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

template <Format kFormat>
__device__ inline void SumParts(const TacoSumArgs& args, const TacoPlace& place,
                                TacoValues& sum) {
  LoadPart<kFormat>(args, place, 0, sum);
#pragma unroll 1
  for (uint32_t part = 1; part < args.parts; ++part) {
    TacoValues values;
    LoadPart<kFormat>(args, place, part, values);
#pragma unroll
    for (int k = 0; k < kTacoOfLane; ++k) sum[k] = sum[k] + values[k];
  }
}

template <Format kFormat>
__global__ void __launch_bounds__(kTacoThreads)
    TacoReduceKernel(const __grid_constant__ TacoSumArgs args) {
  const TacoFlatArgs& flat = args.flat;
  const TacoPlace place(flat);
  TacoCodes codes;
  const TacoScale scale = EncodeTacoBlock<kFormat>(
      flat, place, [&](TacoValues& values) { SumParts<kFormat>(args, place, values); }, codes);
  StoreTacoBlock(flat, place, scale.c, codes);
  TacoValues values;
  const bool numbers = NumbersOfTaco<kFormat>(place, codes, scale.c, values);
  ScaleTaco(scale.c, LargestFinite(flat.dtype), flat.unit, values);
  StoreTaco(flat.elements_dev, flat.dtype, place, !numbers, values);
}

template <Format kFormat>
__global__ void __launch_bounds__(kTacoThreads)
    TacoSumKernel(const __grid_constant__ TacoSumArgs args) {
  const TacoPlace place(args.flat);
  TacoValues sum;
  SumParts<kFormat>(args, place, sum);
  float largest = 0;
#pragma unroll
  for (const float value : sum) largest = LargerOrNan(largest, fabsf(value));
  if (largest >= 0) {
    StoreTaco(args.flat.elements_dev, args.flat.dtype, place, /*nan=*/false, sum);
    return;
  }
  // Some are NaNs: all of these become the same one.
#pragma unroll
  for (int k = 0; k < kTacoOfLane; ++k) {
    const uint32_t element = place.RunBegin(k / kTacoRun) + k % kTacoRun;
    if (element >= place.count) continue;
    const float value = isnan(sum[k]) ? __uint_as_float(taco::kNanBits) : sum[k];
    StoreElement(value, args.flat.elements_dev, args.flat.dtype, place.offset + element);
  }
}

}  // namespace

int ReduceTaco(int device, const TacoSumArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const unsigned blocks = TacoThreadBlocks(args->flat);
  const auto handle = static_cast<cudaStream_t>(stream);
  return OfTacoFormat(args->flat.format, [&]<Format kFormat>() {
    if (args->flat.payload_dev == nullptr) {
      TacoSumKernel<kFormat><<<blocks, kTacoThreads, 0, handle>>>(*args);
    } else {
      TacoReduceKernel<kFormat><<<blocks, kTacoThreads, 0, handle>>>(*args);
    }
    return Launched();
  });
}

}  // namespace longhaul::codec::cuda
