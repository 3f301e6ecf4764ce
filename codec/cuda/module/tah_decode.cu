#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/tah_select.cuh"
#include "codec/cuda/module/tah_tile.cuh"

namespace longhaul::codec::cuda {
namespace {

// A block takes groups of allocation tiles that follow each other, so that it counts the precision
// bits before its first one alone.
template <int kTile>
class Decoder {
 public:
  __device__ explicit Decoder(const TahArgs& args)
      : args_(args), payload_(args.blob_dev + kHeaderBytes), vectorised_(Vectorised(args.tensor)) {}

  __device__ void Run() {
    const uint64_t groups = TahScratch::Groups(args_.allocs);
    const uint64_t all = groups * args_.tensor.samples;
    const uint64_t share = (all + gridDim.x - 1) / gridDim.x;
    const uint64_t end = min(all, (blockIdx.x + 1) * share);
    uint32_t sample = ~0u;
    for (uint64_t k = blockIdx.x * share; k < end; ++k) {
      const auto group = static_cast<uint32_t>(k % groups);
      if (k / groups != sample) {
        sample = static_cast<uint32_t>(k / groups);
        EnterSample(sample, group);
      }
      DecodeGroup(sample, group);
    }
  }

 private:
  static constexpr int kLanes = kTileLanes<kTile>;
  static constexpr uint32_t kTogether = kThreads / kLanes;
  static constexpr uint32_t kWordsOfGroup = kTahGroup / 32;

  __device__ const uint32_t* Precision(uint32_t sample) const {
    return reinterpret_cast<const uint32_t*>(payload_ + args_.precision +
                                             sample * args_.precision_bytes);
  }

  // Counts the sample's precision bits: those before the group, and all.
  __device__ void EnterSample(uint32_t sample, uint32_t group) {
    __shared__ uint32_t words[kThreads / kWarp];
    const uint32_t* const precision = Precision(sample);
    const uint64_t count = args_.precision_bytes / 4;
    uint32_t before = 0;
    uint32_t all = 0;
    bool beyond = false;
    for (uint64_t k = threadIdx.x; k < count; k += kThreads) {
      const uint32_t word = precision[k];
      if (k < uint64_t{group} * kWordsOfGroup) before += __popc(word);
      all += __popc(word);
      const uint64_t first = 32 * k;
      if (first + 32 > args_.allocs) {
        const uint64_t used = args_.allocs > first ? args_.allocs - first : 0;
        beyond = beyond || word >> used != 0;
      }
    }
    uint32_t total = 0;
    BlockScan(before, words, &total);
    fours_before_ = total;
    BlockScan(all, words, &total);
    exponent_ = reinterpret_cast<const int16_t*>(payload_)[sample];
    const bool fits = __syncthreads_or(beyond) == 0 && total == args_.fours;
    possible_ = fits && exponent_ >= kMinExponent && exponent_ <= kMaxExponent;
    if (!possible_) {
      if (threadIdx.x == 0) atomicOr(args_.fault_dev, 1u);
      exponent_ = 0;
    }
  }

  __device__ void DecodeGroup(uint32_t sample, uint32_t group) {
    __shared__ uint32_t words[kWordsOfGroup];
    const uint64_t first = uint64_t{group} * kTahGroup;
    __syncthreads();
    if (threadIdx.x < kWordsOfGroup) {
      const uint64_t word = first / 32 + threadIdx.x;
      words[threadIdx.x] = word < args_.precision_bytes / 4 ? Precision(sample)[word] : 0;
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
      DecodeTile(sample, there, uint64_t{token} * args_.token_tiles + token_tile,
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

  __device__ void DecodeTile(uint32_t sample, bool there, uint64_t sample_tile, uint32_t slot,
                             uint32_t tile, bool* finite, float (&values)[kPerLane]) {
    const uint32_t lane = threadIdx.x % kLanes;
    uint16_t stored = 0;
    float zero = 0;
    uint32_t pivot = 0;
    uint32_t words[2] = {0, 0};
    if (there) {
      const uint64_t tensor_tile = sample * args_.tiles + sample_tile;
      stored = reinterpret_cast<const uint16_t*>(payload_ + args_.scales)[tensor_tile];
      zero = FromHalf(reinterpret_cast<const uint16_t*>(payload_ + args_.zeros)[tensor_tile]);
      const auto* const planes =
          reinterpret_cast<const uint16_t*>(payload_ + args_.codes + tensor_tile * (3 * kTile / 8));
      const uint32_t low = planes[lane] | uint32_t{planes[lane + kLanes]} << 16;
      uint32_t high = planes[lane + 2 * kLanes];
      if (slot != kNoSlot) {
        const uint64_t place = (sample * args_.fours + slot) * args_.alloc_tiles.value + tile;
        high |= uint32_t{reinterpret_cast<const uint16_t*>(payload_ + args_.fourth_bits +
                                                           place * (kTile / 8))[lane]}
                << 16;
      }
      words[0] = TransposeNibbles(__byte_perm(low, high, 0x6420));
      words[1] = TransposeNibbles(__byte_perm(low, high, 0x7531));
      if ((stored & 0x8000) != 0) pivot = Pivot(sample, sample_tile);
    }
    *finite = possible_ && (stored & 0x7c00) != 0x7c00;
    const float scale = FromHalf(stored & 0x7fff);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const uint32_t code = words[k / 8] >> NibbleShift(k % 8) & 15;
      const float number = __uint_as_float(0x4b000000 | code) - 8388608.0f;
      values[k] = number * scale + zero;
    }
    const bool transformed = *finite && (stored & 0x8000) != 0;
    if (__any_sync(kAllLanes, transformed)) {
      float changed[kPerLane];
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) changed[k] = values[k];
      Hadamard<kTile>(changed);
      SwapPivot<kTile>(pivot, changed);
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) values[k] = transformed ? changed[k] : values[k];
    }
  }

  __device__ uint32_t Pivot(uint32_t sample, uint64_t tile) const {
    const uint64_t bit = tile * args_.pivot_bits;
    const unsigned char* const bits =
        payload_ + args_.pivots + sample * args_.pivot_bytes + bit / 8;
    uint32_t value = bits[0];
    if (bit % 8 + args_.pivot_bits > 8) value |= uint32_t{bits[1]} << 8;
    return value >> bit % 8 & ((1u << args_.pivot_bits) - 1);
  }

  static constexpr uint32_t kNoSlot = 0xffffffff;

  const TahArgs& args_;
  const unsigned char* const payload_;
  const bool vectorised_;
  uint32_t fours_before_ = 0;
  int exponent_ = 0;
  bool possible_ = true;
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
  if (args->tile == 32) return Decode<32>(*args, handle);
  return args->tile == 64 ? Decode<64>(*args, handle) : Decode<128>(*args, handle);
}

}  // namespace longhaul::codec::cuda
