#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/taco_block.cuh"

namespace longhaul::codec::cuda {
namespace {

template <Format kFormat>
__global__ void __launch_bounds__(kTacoThreads)
    TacoDecodeKernel(const __grid_constant__ TacoFlatArgs args) {
  const TacoPlace place(args);
  TacoCodes codes;
  LoadTacoCodes(args.payload_dev, args.codes, place, codes);
  const float c =
      place.there ? reinterpret_cast<const float*>(args.payload_dev)[place.block] : 0.0f;
  TacoValues values;
  const bool numbers = NumbersOfTaco<kFormat>(place, codes, c, values);
  ScaleTaco(c, LargestFinite(args.dtype), args.unit, values);
  StoreTaco(args.elements_dev, args.dtype, place, !numbers, values);
}

}  // namespace

int DecodeTacoFlat(int device, const TacoFlatArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  return OfTacoFormat(args->format, [&]<Format kFormat>() {
    TacoDecodeKernel<kFormat>
        <<<TacoThreadBlocks(*args), kTacoThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return Launched();
  });
}

int DecodeTaco(int device, const TacoArgs* args, void* stream) {
  return DecodeTacoFlat(device, &args->flat, stream);
}

}  // namespace longhaul::codec::cuda
