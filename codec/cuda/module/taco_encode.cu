#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/taco_block.cuh"

namespace longhaul::codec::cuda {
namespace {

// A kernel before this one may still be writing the word that counts, and nothing else of it.
template <Format kFormat>
__global__ void __launch_bounds__(kTacoThreads)
    TacoEncodeKernel(const __grid_constant__ TacoFlatArgs args) {
  const TacoPlace place(args);
  TacoCodes codes;
  const TacoScale scale = EncodeTacoBlock<kFormat>(
      args, place,
      [&](TacoValues& values) { LoadTaco(args.elements_dev, args.dtype, place, values); }, codes);
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
  return OfTacoFormat(args->flat.format, [&]<Format kFormat>() {
    return LaunchNext(TacoEncodeKernel<kFormat>, {TacoThreadBlocks(args->flat), kTacoThreads, 0},
                      static_cast<cudaStream_t>(stream), args->flat);
  });
}

int EncodeTacoFlat(int device, const TacoFlatArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  return OfTacoFormat(args->format, [&]<Format kFormat>() {
    TacoEncodeKernel<kFormat>
        <<<TacoThreadBlocks(*args), kTacoThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return Launched();
  });
}

}  // namespace longhaul::codec::cuda
