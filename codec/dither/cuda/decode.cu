#include "codec/cuda/module/kernels.cuh"
#include "codec/dither/cuda/group.cuh"

namespace longhaul::codec::cuda {
namespace {

// For each value of a state's low 12 bits and each outer bit, in one word: the symbol, the
// frequency, and the number of the slot in the symbol's interval.
template <int kHalfBits>
struct Entries {
  constexpr Entries() {
    const dither::Slots<kHalfBits> slots;
    const dither::Intervals<kHalfBits> intervals;
    for (uint32_t slot = 0; slot < 2 * dither::kTableSize; ++slot) {
      const uint32_t symbol = slots.symbols[slot];
      const dither::Interval& interval =
          intervals.of_code[(slot >= dither::kTableSize ? dither::kOuter : 0) | symbol];
      const uint32_t offset = (slot & (dither::kTableSize - 1)) - interval.start;
      of_slot[slot] = symbol | interval.frequency << 8 | offset << 20;
    }
  }
  uint32_t of_slot[2 * dither::kTableSize] = {};
};
template <int kHalfBits>
__device__ constexpr Entries<kHalfBits> kEntries;

// A group in shared memory. The window has the last words of the group, which is nearly always all
// of them: a read from there takes a tenth of the time.
struct GroupAtHand {
  __device__ GroupAtHand(unsigned char* memory, uint32_t block)
      : codes(memory),
        window(reinterpret_cast<uint16_t*>(memory + dither::kGroupBlocks * block)),
        most_words(WordsOf(block)) {}
  // Room for 4 bits an element.
  __host__ __device__ static constexpr uint32_t WordsOf(uint32_t block) {
    return dither::kGroupBlocks * block / 4;
  }
  __host__ __device__ static constexpr uint32_t BytesOf(uint32_t block) {
    return dither::kGroupBlocks * block + 2 * WordsOf(block) + 16;  // WordReader reads one further
  }
  // Copies the last words of a group to the window. `count`: number of the group's words. All
  // threads of the block call it.
  __device__ void FillWindow(const uint16_t* words, uint32_t count) const {
    const uint32_t kept = min(count, most_words);
    for (uint32_t k = threadIdx.x; k < kept; k += kDitherThreads) {
      window[k] = words[count - kept + k];
    }
  }
  uint8_t* codes;
  uint16_t* window;
  uint32_t most_words;
};

// Reads a group's words from the last to the first. A reader that has no words left gives wrong
// ones, and left() stays below 0.
template <bool kInWindow>
class WordReader {
 public:
  // `words`: the group's words in global memory, of which the window has all if kInWindow.
  __device__ WordReader(const GroupAtHand& at_hand, const uint16_t* words, uint32_t count)
      : words_(words),
        window_(at_hand.window),
        begin_(kInWindow ? 0 : static_cast<int>(count - at_hand.most_words)),
        left_(static_cast<int>(count)) {}

  // Takes a word for each lane that needs one and `may` have one, and returns the new state. All
  // lanes call it together.
  __device__ uint32_t Grown(uint32_t state, bool may) {
    const bool must = may && state < dither::kLeastState;
    const uint32_t who = __ballot_sync(kAllLanes, must);
    left_ -= __popc(who);
    const int place = max(left_ + __popc(who & ((1u << threadIdx.x % kWarp) - 1)), 0);
    // Lanes that need no word read one, too, and leave it: this is faster than a branch.
    uint32_t word = 0;
    if constexpr (kInWindow) {
      word = window_[place];
    } else if (must) {
      word = place >= begin_ ? window_[place - begin_] : words_[place];
    }
    return must ? state << 16 | word : state;
  }
  __device__ int left() const { return left_; }

 private:
  const uint16_t* const words_;
  const uint16_t* const window_;
  const int begin_;  // the first word in the window
  int left_;
};

// Decodes a group, by one warp: completes the codes, which have their outer bits, and writes the
// scales. Returns false if no encoder writes these words and states.
template <int kHalfBits, bool kInWindow>
__device__ bool DecodeCodes(uint32_t elements, const uint32_t* states, WordReader<kInWindow> words,
                            uint8_t* codes, uint8_t* scales) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t state = states[lane];
  if (__any_sync(kAllLanes, state < dither::kLeastState)) return false;
  uint32_t outer = codes[elements - kWarp + lane];
  for (uint32_t step = elements; step > 0; step -= kWarp) {
    uint8_t* const place = codes + step - kWarp + lane;
    const uint32_t entry = __ldg(&kEntries<kHalfBits>.of_slot[dither::SlotOf(state, outer)]);
    uint32_t code = outer | (entry & (dither::kSymbols - 1));
    const bool escaped = (entry & (dither::kSymbols - 1)) == dither::kEscape;
    const bool any_escaped = __any_sync(kAllLanes, escaped) != 0;
    if (step > kWarp) outer = place[-static_cast<int>(kWarp)];
    state = words.Grown(
        (entry >> 8 & (dither::kTableSize - 1)) * (state >> dither::kTableBits) + (entry >> 20),
        true);
    if (any_escaped) {
      if (escaped) {
        code = (code & dither::kOuter) | dither::RawOf(state);
        state = dither::PopRaw(state);
      }
      state = words.Grown(state, escaped);
    }
    *place = static_cast<uint8_t>(code);
  }
  scales[2 * lane] = static_cast<uint8_t>(state);
  scales[2 * lane + 1] = static_cast<uint8_t>(state >> 8);
  return words.left() == 0 && __all_sync(kAllLanes, dither::EndsWell(state));
}

// Restores the blocks of a warp from codes and writes the elements. `scales`: null if the group is
// damaged; then its elements become NaN.
template <int kHalfBits>
__device__ void RestoreBlocks(const DitherArgs& args, const DitherGroup& group,
                              const DitherPlace& place, const uint32_t* noise, int exponent,
                              const uint8_t* codes, const uint8_t* scales) {
  float values[kOfLane] = {};
  if (place.there) {
#pragma unroll
    for (int eight = 0; eight < kOfLane; eight += 8) {
      const uint32_t in_group = place.first + RunBegin(place, eight / kRun) + eight % kRun;
      const Philox::Counter noises = EightNoises(noise, (group.first_index + in_group) / 8);
      const uint2 two = *reinterpret_cast<const uint2*>(codes + in_group);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t code = (k < 4 ? two.x : two.y) >> k % 4 * 8 & 0xff;
        values[eight + k] = static_cast<float>(dither::RestoredOf(code, NoiseOf(noises, k)));
      }
    }
  }
  TransformBlocks(args, place, values);
  if (!place.there) return;
  const uint8_t byte = scales != nullptr ? scales[place.index] : gauss::kNonfiniteBlock;
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
__global__ void __launch_bounds__(kDitherThreads, 8)
    DecodeKernel(const __grid_constant__ DitherArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ uint8_t scales[dither::kGroupBlocks];
  __shared__ bool good;
  const GroupAtHand at_hand(memory, args.block);
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
  const auto* const ends = reinterpret_cast<const uint64_t*>(payload + args.ends);
  const uint64_t begin = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  const uint64_t end = ends[blockIdx.x];
  const uint64_t all = ends[args.groups - 1];
  int exponent = reinterpret_cast<const int16_t*>(payload + args.exponents)[blockIdx.x];
  // No other bytes are read than the blob has, whatever it says.
  const bool possible = begin <= end && end <= all && all <= payload_bytes &&
                        args.words + (2 * all + 15) / 16 * 16 == payload_bytes &&
                        exponent >= gauss::kMinExponent && exponent <= gauss::kMaxExponent;
  const auto* const words = reinterpret_cast<const uint16_t*>(payload + args.words) + begin;
  const uint32_t count = possible ? static_cast<uint32_t>(end - begin) : 0;
  at_hand.FillWindow(words, count);
  // The tables come into the cache here, where no lane waits for them.
  uint32_t touched = 0;
  for (uint32_t k = 32 * threadIdx.x; k < 2 * dither::kTableSize; k += 32 * kDitherThreads) {
    touched |= __ldg(&kEntries<kHalfBits>.of_slot[k]);
  }
  if (touched == ~0u) return;  // never; so the compiler keeps the reads
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
  if (threadIdx.x < kWarp) {
    const auto* const states = reinterpret_cast<const uint32_t*>(payload + args.states) +
                               uint64_t{blockIdx.x} * dither::kLanes;
    const auto decode = [&]<bool kInWindow>() {
      return DecodeCodes<kHalfBits, kInWindow>(group.elements, states, {at_hand, words, count},
                                               at_hand.codes, scales);
    };
    const bool decoded =
        possible && (count <= at_hand.most_words ? decode.template operator()<true>()
                                                 : decode.template operator()<false>());
    if (threadIdx.x == 0) {
      good = decoded;
      if (!decoded) atomicOr(args.fault_dev, kFaultContents);
    }
  }
  __syncthreads();
  if (!possible) exponent = 0;
  for (uint32_t turn = threadIdx.x / kWarp; turn < Turns(args, group);
       turn += kDitherThreads / kWarp) {
    RestoreBlocks<kHalfBits>(args, group, PlaceAt(args, group, turn), noise, exponent,
                             at_hand.codes, good ? scales : nullptr);
  }
}

template <int kHalfBits>
int Decode(const DitherArgs& args, cudaStream_t stream) {
  const uint32_t shared_bytes = GroupAtHand::BytesOf(args.block);
  DecodeKernel<kHalfBits>
      <<<static_cast<unsigned>(args.groups), kDitherThreads, shared_bytes, stream>>>(args);
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
