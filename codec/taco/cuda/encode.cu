#include "codec/cuda/module/kernels.cuh"
#include "codec/taco/cuda/block.cuh"
#include "codec/taco/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// A kernel before this one may still be writing the word that counts, and nothing else of it.
template <Format kFormat, uint32_t kDtype, uint32_t kLanes>
__global__ void __launch_bounds__(kTacoThreads)
    TacoEncodeKernel(const __grid_constant__ TacoFlatArgs args) {
  const TacoPlace place(args, kLanes);
  TacoCodes codes;
  const TacoScale scale = EncodeTacoBlock<kFormat>(
      args, place, [&](TacoValues& values) { LoadTaco<kDtype>(args.elements_dev, place, values); },
      codes);
  StoreTacoBlock(args, place, scale.c, codes);
  AwaitKernelBefore();
  const unsigned found = __ballot_sync(kAllLanes, scale.nonfinite && place.lane == 0);
  if (found != 0 && threadIdx.x % kWarp == 0 && args.nonfinite_dev != nullptr) {
    atomicAdd(args.nonfinite_dev, static_cast<unsigned long long>(__popc(found)));
  }
}

}  // namespace

int EncodeTaco(int device, const TacoArgs* args, void* stream) {
  if (const int error = WriteHeader(device, &args->header, args->blob_dev, stream); error != 0) {
    return error;
  }
  return OfTaco(args->flat, [&]<Format kFormat, uint32_t kDtype, uint32_t kLanes>() {
    return LaunchNext(TacoEncodeKernel<kFormat, kDtype, kLanes>,
                      {TacoThreadBlocks(args->flat), kTacoThreads, 0},
                      static_cast<cudaStream_t>(stream), args->flat);
  });
}

int EncodeTacoFlat(int device, const TacoFlatArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  return OfTaco(*args, [&]<Format kFormat, uint32_t kDtype, uint32_t kLanes>() {
    TacoEncodeKernel<kFormat, kDtype, kLanes>
        <<<TacoThreadBlocks(*args), kTacoThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return Launched();
  });
}

int DecodeTaco(int device, const TacoArgs* args, void* stream);          // decode.cu
int DecodeTacoFlat(int device, const TacoFlatArgs* args, void* stream);  // decode.cu
int ReduceTaco(int device, const TacoSumArgs* args, void* stream);       // reduce.cu
const TacoKernels kTacoKernels = {EncodeTaco, DecodeTaco, EncodeTacoFlat, DecodeTacoFlat,
                                  ReduceTaco};

}  // namespace longhaul::codec::cuda
