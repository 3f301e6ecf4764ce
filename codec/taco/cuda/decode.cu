#include "codec/cuda/module/kernels.cuh"
#include "codec/taco/cuda/block.cuh"
#include "codec/taco/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

template <Format kFormat, uint32_t kDtype, uint32_t kLanes>
__global__ void __launch_bounds__(kTacoThreads)
    TacoDecodeKernel(const __grid_constant__ TacoFlatArgs args) {
  const TacoPlace place(args, kLanes);
  TacoCodes codes;
  LoadTacoCodes(args.payload_dev, args.codes, place, codes);
  const float c = reinterpret_cast<const float*>(args.payload_dev)[place.block];
  TacoValues values;
  const bool numbers = NumbersOfTaco<kFormat>(place, codes, c, values);
  StoreDecoded<kDtype>(args.elements_dev, place, numbers, c, args.unit, values);
}

}  // namespace

int DecodeTacoFlat(int device, const TacoFlatArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  return OfTaco(*args, [&]<Format kFormat, uint32_t kDtype, uint32_t kLanes>() {
    TacoDecodeKernel<kFormat, kDtype, kLanes>
        <<<TacoThreadBlocks(*args), kTacoThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return Launched();
  });
}

int DecodeTaco(int device, const TacoArgs* args, void* stream) {
  return DecodeTacoFlat(device, &args->flat, stream);
}

}  // namespace longhaul::codec::cuda
