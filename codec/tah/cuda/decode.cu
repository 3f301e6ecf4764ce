#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/tah/cuda/decode.cuh"

namespace longhaul::codec::cuda {
namespace {

// Any shape, dtype and parameters.
template <int kTile>
class Decoder : public TahDecoder<kTile> {
 public:
  __device__ explicit Decoder(const TahArgs& args)
      : Base(args), vectorised_(Vectorised(args.tensor)) {}

  __device__ void Run() {
    this->ForSamples([&](uint32_t sample, uint32_t first, uint32_t end) {
      for (uint32_t group = first; group < end; ++group) DecodeGroup(sample, group);
    });
  }

 private:
  using Base = TahDecoder<kTile>;
  using Base::args_, Base::exponent_, Base::fours_before_, Base::kLanes, Base::kNoSlot,
      Base::kWordsOfGroup, Base::possible_;
  static constexpr uint32_t kTogether = kThreads / kLanes;

  __device__ void DecodeGroup(uint32_t sample, uint32_t group) {
    __shared__ uint32_t words[kWordsOfGroup];
    const uint64_t first = uint64_t{group} * kTahGroup;
    __syncthreads();
    if (threadIdx.x < kWordsOfGroup) {
      const uint64_t word = first / 32 + threadIdx.x;
      words[threadIdx.x] = word < args_.precision_bytes / 4 ? this->Precision(sample)[word] : 0;
    }
    __syncthreads();
    const uint32_t lane = threadIdx.x % kLanes;
    const auto allocs = static_cast<uint32_t>(min(args_.allocs - first, uint64_t{kTahGroup}));
    const uint32_t tiles = allocs * args_.alloc_tiles.value;
    // Whole warps.
    for (uint32_t k = threadIdx.x / kLanes; k < (tiles + kTogether - 1) / kTogether * kTogether;
         k += kTogether) {
      const uint32_t local = min(k / args_.alloc_tiles, allocs - 1);
      const uint32_t tile = k - local * args_.alloc_tiles.value;
      const auto alloc = static_cast<uint32_t>(first) + local;
      const uint32_t token = alloc / args_.token_allocs;
      const uint32_t token_tile =
          (alloc - token * args_.token_allocs.value) * args_.alloc_tiles.value + tile;
      const bool there = k < tiles && token_tile < args_.token_tiles;
      bool finite = true;
      float values[kPerLane] = {};
      this->DecodeTile(sample, there, uint64_t{token} * args_.token_tiles + token_tile,
                       SlotOf(words, local), tile, &finite, values);
      if (!there) continue;
      StoreLane(args_.tensor, vectorised_,
                Place(args_.tensor, sample * args_.tensor.tokens + token, token_tile, kTile), lane,
                finite, exponent_, values);
    }
    for (const uint32_t word : words) fours_before_ += __popc(word);
  }

  // Where the fourth plane of an allocation tile of the group lies, or kNoSlot.
  __device__ uint32_t SlotOf(const uint32_t* words, uint32_t local) const {
    const uint32_t word = words[local / 32];
    if (!possible_ || (word >> local % 32 & 1) == 0) return kNoSlot;
    uint32_t slot = fours_before_ + __popc(word & ((1u << local % 32) - 1));
    for (uint32_t k = 0; k < local / 32; ++k) slot += __popc(words[k]);
    return slot;
  }

  const bool vectorised_;
};

template <int kTile>
__global__ void __launch_bounds__(kThreads) DecodeKernel(const __grid_constant__ TahArgs args) {
  Decoder<kTile>(args).Run();
}

template <int kTile>
int Decode(const TahArgs& args, cudaStream_t stream) {
  unsigned blocks = 1;
  if (const int error =
          ResidentBlocks(reinterpret_cast<const void*>(DecodeKernel<kTile>),
                         args.tensor.samples * TahScratch::Groups(args.allocs), &blocks);
      error != 0) {
    return error;
  }
  DecodeKernel<kTile><<<blocks, kThreads, 0, stream>>>(args);
  return Launched();
}

}  // namespace

int DecodeTah(int device, const TahArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  if (HasWholeTiles(args->tensor, args->tile) && args->alloc_tiles.value == 1) {
    return DecodeWholeTiles(*args, handle);
  }
  if (args->tile == 32) return Decode<32>(*args, handle);
  return args->tile == 64 ? Decode<64>(*args, handle) : Decode<128>(*args, handle);
}

}  // namespace longhaul::codec::cuda
