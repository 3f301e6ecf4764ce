#include "codec/cuda/module/kernels.cuh"
#include "codec/dither/cuda/group.cuh"

namespace longhaul::codec::cuda {
namespace {

// Reads a group's words from the last to the first.
class WordReader {
 public:
  __device__ WordReader(const uint16_t* words, uint32_t count) : words_(words), left_(count) {}

  // Takes a word for each lane that needs one and `may` have one, and returns the new state. All
  // lanes call it together.
  __device__ uint32_t Grown(uint32_t state, bool may) {
    const bool must = may && state < dither::kLeastState;
    const uint32_t who = __ballot_sync(kAllLanes, must);
    const uint32_t wanted = __popc(who);
    missing_ = missing_ || wanted > left_;
    left_ -= min(wanted, left_);
    if (!must) return state;
    if (missing_) return dither::kLeastState;
    return state << 16 | words_[left_ + __popc(who & ((1u << threadIdx.x % kWarp) - 1))];
  }
  __device__ bool missing() const { return missing_; }
  __device__ uint32_t left() const { return left_; }

 private:
  const uint16_t* const words_;
  uint32_t left_;
  bool missing_ = false;
};

struct GroupAtHand {
  alignas(16) uint8_t codes[dither::kGroupBlocks * dither::kMaxBlock];
  alignas(16) uint8_t slots[2 * dither::kTableSize];
  dither::Interval intervals[2 * dither::kOuter];
  uint8_t scales[dither::kGroupBlocks];
  bool good;
};

// Decodes a group, by one warp: completes the codes, which have their outer bits, and writes the
// scales. Returns false if no encoder writes these words and states.
__device__ bool DecodeCodes(uint32_t elements, const uint32_t* states, WordReader words,
                            GroupAtHand* at_hand) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t state = states[lane];
  if (__any_sync(kAllLanes, state < dither::kLeastState)) return false;
  uint32_t outer = at_hand->codes[elements - kWarp + lane];
  for (uint32_t step = elements; step > 0; step -= kWarp) {
    uint8_t* const place = at_hand->codes + step - kWarp + lane;
    uint32_t code = outer | at_hand->slots[dither::SlotOf(state, outer)];
    if (step > kWarp) outer = place[-static_cast<int>(kWarp)];
    state = words.Grown(dither::Pop(state, at_hand->intervals[code]), true);
    const bool escaped = (code & (dither::kSymbols - 1)) == dither::kEscape;
    if (__any_sync(kAllLanes, escaped)) {
      if (escaped) {
        code = (code & dither::kOuter) | dither::RawOf(state);
        state = dither::PopRaw(state);
      }
      state = words.Grown(state, escaped);
    }
    *place = static_cast<uint8_t>(code);
    if (words.missing()) return false;
  }
  at_hand->scales[2 * lane] = static_cast<uint8_t>(state);
  at_hand->scales[2 * lane + 1] = static_cast<uint8_t>(state >> 8);
  return words.left() == 0 && __all_sync(kAllLanes, dither::EndsWell(state));
}

// Restores the blocks of a warp from codes and writes the elements. NaN if the group is damaged.
template <int kHalfBits>
__device__ void RestoreBlocks(const DitherArgs& args, const DitherGroup& group,
                              const DitherPlace& place, const uint32_t* noise, int exponent,
                              const GroupAtHand& at_hand) {
  float values[kOfLane] = {};
  if (place.there) {
#pragma unroll
    for (int eight = 0; eight < kOfLane; eight += 8) {
      const uint32_t in_group = place.first + RunBegin(place, eight / kRun) + eight % kRun;
      const Philox::Counter noises = EightNoises(noise, (group.first_index + in_group) / 8);
      const uint2 two = *reinterpret_cast<const uint2*>(at_hand.codes + in_group);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t code = (k < 4 ? two.x : two.y) >> k % 4 * 8 & 0xff;
        values[eight + k] = static_cast<float>(dither::RestoredOf(code, NoiseOf(noises, k)));
      }
    }
  }
  TransformBlocks(args, place, values);
  if (!place.there) return;
  const uint8_t byte = at_hand.good ? at_hand.scales[place.index] : gauss::kNonfiniteBlock;
  if (byte == gauss::kZeroBlock) {
#pragma unroll
    for (float& value : values) value = 0;
  } else {
    const gauss::BlockScale scale(byte, exponent, __ffs(static_cast<int>(place.size)) - 1);
    const float first = dither::Tables<kHalfBits>::kUnit * scale.first;
    const float limit = LargestFinite(args.tensor.dtype);
#pragma unroll
    for (float& value : values) {
      value = fminf(fmaxf(value * first * scale.second, -limit), limit);
    }
    ChangeSigns(place, values);
  }
  const bool vectorised = Vectorised(args.tensor);
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    float half[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) half[k] = values[run * kRun + k];
    StoreLane(args.tensor, vectorised, place.tile, run * place.lanes + place.lane,
              byte != gauss::kNonfiniteBlock, 0, half);
  }
}

template <int kHalfBits>
__global__ void __launch_bounds__(kDitherThreads)
    DecodeKernel(const __grid_constant__ DitherArgs args) {
  __shared__ GroupAtHand at_hand;
  const unsigned char* const payload = args.blob_dev + kHeaderBytes;
  uint64_t payload_bytes = args.payload_bytes;
  if (payload_bytes == 0) {
    payload_bytes = *reinterpret_cast<const uint64_t*>(args.blob_dev + kPayloadBytesOffset);
  }
  const bool cut = payload_bytes > args.most_payload_bytes;
  if (cut || payload_bytes < args.words) {
    // One thread of the grid alone: the fault word may lie in host memory, where an atomic takes a
    // microsecond.
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      atomicOr(args.fault_dev, cut ? kFaultCut : kFaultContents);
    }
    return;
  }
  const DitherGroup group = GroupAt(args, blockIdx.x);
  const auto* const noise = reinterpret_cast<const uint32_t*>(payload);
  for (uint32_t k = threadIdx.x; k < 2 * dither::kTableSize / 16; k += kDitherThreads) {
    reinterpret_cast<uint4*>(at_hand.slots)[k] =
        reinterpret_cast<const uint4*>(kSlots<kHalfBits>.symbols)[k];
  }
  static_assert(kDitherThreads == 2 * dither::kOuter);
  at_hand.intervals[threadIdx.x] = kIntervals<kHalfBits>.of_code[threadIdx.x];
  for (uint32_t k = 8 * threadIdx.x; k < group.elements; k += 8 * kDitherThreads) {
    const Philox::Counter noises = EightNoises(noise, (group.first_index + k) / 8);
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i / 4] |= dither::OuterBit(NoiseOf(noises, i)) << i % 4 * 8;
    }
    *reinterpret_cast<uint2*>(at_hand.codes + k) = make_uint2(words[0], words[1]);
  }
  __syncthreads();
  const auto* const ends = reinterpret_cast<const uint64_t*>(payload + args.ends);
  const uint64_t begin = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  const uint64_t end = ends[blockIdx.x];
  const uint64_t all = ends[args.groups - 1];
  int exponent = reinterpret_cast<const int16_t*>(payload + args.exponents)[blockIdx.x];
  // No other bytes are read than the blob has, whatever it says.
  const bool possible = begin <= end && end <= all && all <= payload_bytes &&
                        args.words + (2 * all + 15) / 16 * 16 == payload_bytes &&
                        exponent >= gauss::kMinExponent && exponent <= gauss::kMaxExponent;
  if (threadIdx.x < kWarp) {
    const auto* const states = reinterpret_cast<const uint32_t*>(payload + args.states) +
                               uint64_t{blockIdx.x} * dither::kLanes;
    const WordReader words(reinterpret_cast<const uint16_t*>(payload + args.words) + begin,
                           possible ? static_cast<uint32_t>(end - begin) : 0);
    const bool good = possible && DecodeCodes(group.elements, states, words, &at_hand);
    if (threadIdx.x == 0) {
      at_hand.good = good;
      if (!good) atomicOr(args.fault_dev, kFaultContents);
    }
  }
  __syncthreads();
  if (!possible) exponent = 0;
  for (uint32_t turn = threadIdx.x / kWarp; turn < Turns(args, group);
       turn += kDitherThreads / kWarp) {
    RestoreBlocks<kHalfBits>(args, group, PlaceAt(args, group, turn), noise, exponent, at_hand);
  }
}

template <int kHalfBits>
int Decode(const DitherArgs& args, cudaStream_t stream) {
  DecodeKernel<kHalfBits><<<static_cast<unsigned>(args.groups), kDitherThreads, 0, stream>>>(args);
  return Launched();
}

}  // namespace

int DecodeDither(int device, const DitherArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  return dither::ForHalfBits(args->half_bits,
                             [&]<int kHalfBits>() { return Decode<kHalfBits>(*args, handle); });
}

}  // namespace longhaul::codec::cuda
