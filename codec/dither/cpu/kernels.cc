#include "codec/dither/cpu/kernels.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "codec/dither/cpu/block_kernels.h"
#include "codec/dither/cpu/rans.h"
#include "codec/parallel.h"
#include "codec/simd/elements.h"
#include "codec/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/dither/cpu/kernels.cc"
#include <hwy/foreach_target.h>

#include "codec/dither/cpu/block-inl.h"
#include "codec/simd/noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::dither::cpu::HWY_NAMESPACE {

void FillNumbers(const RoundingNoise& noise, uint64_t index, size_t count, uint16_t* out) {
  static_assert(128 % longhaul::codec::simd::HWY_NAMESPACE::kNoiseStride == 0);
  longhaul::codec::simd::HWY_NAMESPACE::FillNoise(noise, index, count, out);
}

int16_t EncodeAny(float per_unit, const float* signs, const uint16_t* numbers, size_t size,
                  float* values, uint8_t* codes) {
  const uint32_t largest = blocks::LargestMagnitude(values, size);
  if (largest > 0 && largest < kF32Infinity) {
    return EncodeBlock(largest, per_unit, signs, numbers, size, values, codes);
  }
  std::fill_n(values, size, 0.0f);
  Quantize(1, values, numbers, size, codes);
  return largest == 0 ? gauss::kZeroIndex : gauss::kNonfiniteIndex;
}

void OuterBitsOf(const uint16_t* numbers, size_t count, uint8_t* codes) {
  for (size_t k = 0; k < count; k += kLanes) {
    StoreCodes(OuterBits(LoadNumbers(numbers + k)), codes + k);
  }
}

void DecodeAny(float unit, const gauss::BlockScale& scale, const float* signs, const uint8_t* codes,
               const uint16_t* numbers, size_t size, float* values) {
  DecodeBlock(unit, scale, signs, codes, numbers, size, values);
}

BlockKernels KernelsOfTarget() {
  return {&FillNumbers, &EncodeAny, &OuterBitsOf, &DecodeAny};
}

}  // namespace longhaul::codec::dither::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::dither::cpu {
HWY_EXPORT(KernelsOfTarget);

namespace {

// Groups that one thread does alone.
constexpr uint64_t kSmall = 8;
constexpr size_t kGroupElements = size_t{kGroupBlocks} * kMaxBlock;

// gauss::kSigns as the sign bits of floats.
struct SignBits {
  constexpr SignBits() {
    for (uint32_t k = 0; k < kMaxBlock; ++k) {
      value[k] = ((gauss::kSigns[k / 32] >> (k % 32)) & 1) != 0 ? -0.0f : 0.0f;
    }
  }
  alignas(64) float value[kMaxBlock] = {};
};
constexpr SignBits kSignBits;

// Step 5's factor and the unit of R.
struct Units {
  float per_unit, unit;
};
template <int kHalfBits>
constexpr Units kUnits = {Tables<kHalfBits>::kPerUnit, Tables<kHalfBits>::kUnit};

Units UnitsOf(uint32_t half_bits) {
  return ForHalfBits(half_bits, []<int kHalfBits>() { return kUnits<kHalfBits>; });
}

// A block of a group.
struct Place {
  uint32_t index = 0;   // in the group
  uint64_t offset = 0;  // of its first element in the tensor
  size_t count = 0;     // elements that are not padding
  uint32_t size = 0;
  size_t first = 0;  // of its elements in the group
};

// What Encode and Decode know of a tensor, and the memory of a thread for a group.
struct Call {
  Call(const Shape& shape_in, const Params& params_in)
      : shape(shape_in),
        params(params_in),
        layout(MakeLayout(shape_in, params_in)),
        coding(CodingOf(params_in.half_bits)),
        units(UnitsOf(params_in.half_bits)),
        kernels(HWY_DYNAMIC_DISPATCH(KernelsOfTarget)()) {
    LH_CHECK(Possible(params), "{} half bits, blocks of {}", params.half_bits, params.block);
  }

  // The index, among the tensor's elements with padding, of the first one of a block.
  uint64_t Index(uint64_t block) const {
    return block / layout.token_blocks * layout.token_elements +
           block % layout.token_blocks * params.block;
  }
  uint64_t FirstBlock(uint64_t group) const { return group * kGroupBlocks; }
  uint64_t EndBlock(uint64_t group) const {
    return std::min(layout.blocks, (group + 1) * kGroupBlocks);
  }
  size_t Elements(uint64_t group) const {
    return Index(EndBlock(group)) - Index(FirstBlock(group));
  }
  template <class Function>
  void ForEachBlock(uint64_t group, Function&& function) const {
    Place place;
    for (uint64_t block = FirstBlock(group); block < EndBlock(group); ++block, ++place.index) {
      const uint64_t of_token = block % layout.token_blocks;
      const uint64_t channel = of_token * params.block;
      place.offset = block / layout.token_blocks * shape.channels + channel;
      place.count = std::min<uint64_t>(params.block, shape.channels - channel);
      place.size = of_token + 1 < layout.token_blocks ? params.block : layout.last_block;
      function(place);
      place.first += place.size;
    }
  }

  const Shape shape;
  const Params params;
  const Layout layout;
  const Coding coding;
  const Units units;
  const BlockKernels kernels;
};

struct Memory {
  // The numbers' kernel may write up to a multiple of 128.
  alignas(64) uint16_t numbers[kGroupElements];
  alignas(64) uint8_t codes[kGroupElements];
  alignas(64) float values[kMaxBlock];
  alignas(64) uint16_t words[2 * kGroupElements];
};

uint64_t LoadU64(const std::byte* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
void StoreU64(uint64_t value, std::byte* bytes) {
  std::memcpy(bytes, &value, sizeof(value));
}

uint64_t EncodeGroupAt(const TensorView& in, const Call& call, const RoundingNoise& noise,
                       uint64_t group, std::byte* payload) {
  Memory memory;
  GroupCodes codes{.codes = {memory.codes, call.Elements(group)}, .scales = {}};
  call.kernels.fill_numbers(noise, call.Index(call.FirstBlock(group)), codes.codes.size(),
                            memory.numbers);
  int16_t indexes[kGroupBlocks];
  uint32_t blocks = 0;
  uint64_t nonfinite = 0;
  int largest = gauss::kZeroIndex;
  call.ForEachBlock(group, [&](const Place& place) {
    LoadElements(in, place.offset, place.count, place.size, memory.values);
    const int16_t q =
        call.kernels.encode(call.units.per_unit, kSignBits.value, memory.numbers + place.first,
                            place.size, memory.values, memory.codes + place.first);
    indexes[blocks++] = q;
    if (q == gauss::kNonfiniteIndex) {
      ++nonfinite;
    } else {
      largest = std::max<int>(largest, q);
    }
  });
  const int exponent = largest == gauss::kZeroIndex ? 0 : gauss::ExponentOf(largest);
  for (uint32_t block = 0; block < blocks; ++block) {
    codes.scales[block] = gauss::ScaleByte(indexes[block], exponent);
  }
  LaneStates states;
  const size_t words = EncodeGroup(call.coding, codes, memory.words, &states);
  const Layout& layout = call.layout;
  LH_CHECK(words <= layout.group_words, "{} words in a group", words);
  StoreU64(words, payload + layout.ends + 8 * group);
  StoreU16(static_cast<uint16_t>(static_cast<int16_t>(exponent)),
           payload + layout.exponents + 2 * group);
  std::memcpy(payload + layout.states + sizeof(states) * group, &states, sizeof(states));
  std::memcpy(payload + layout.words + 2 * layout.group_words * group, memory.words, 2 * words);
  return nonfinite;
}

// From words of each group, at places of their own, to words one behind the other. Gives all.
uint64_t MoveTogether(const Layout& layout, std::byte* payload) {
  uint64_t all = 0;
  for (uint64_t group = 0; group < layout.groups; ++group) {
    std::byte* const end = payload + layout.ends + 8 * group;
    const uint64_t count = LoadU64(end);
    std::memmove(payload + layout.words + 2 * all,
                 payload + layout.words + 2 * layout.group_words * group, 2 * count);
    all += count;
    StoreU64(all, end);
  }
  return all;
}

// A RoundingNoise is its block: here the one that the blob has.
static_assert(sizeof(RoundingNoise) == sizeof(Philox::Counter));
RoundingNoise NoiseOf(const std::byte* payload) {
  Philox::Counter block;
  std::memcpy(&block, payload, sizeof(block));
  return std::bit_cast<RoundingNoise>(block);
}

// False where no encoder writes the group.
bool DecodeGroupAt(std::span<const std::byte> payload, const Call& call, const RoundingNoise& noise,
                   uint64_t group, const MutableTensorView& out) {
  const Layout& layout = call.layout;
  const std::byte* const ends = payload.data() + layout.ends;
  const uint64_t first = group == 0 ? 0 : LoadU64(ends + 8 * (group - 1));
  const uint64_t end = LoadU64(ends + 8 * group);
  const auto exponent =
      static_cast<int16_t>(LoadU16(payload.data() + layout.exponents + 2 * group));
  const bool possible = first <= end && end <= (payload.size() - layout.words) / 2 &&
                        exponent >= gauss::kMinExponent && exponent <= gauss::kMaxExponent;
  if (!possible) return false;
  Memory memory;
  GroupCodes codes{.codes = {memory.codes, call.Elements(group)}, .scales = {}};
  call.kernels.fill_numbers(noise, call.Index(call.FirstBlock(group)), codes.codes.size(),
                            memory.numbers);
  call.kernels.outer_bits(memory.numbers, codes.codes.size(), memory.codes);
  LaneStates states;
  std::memcpy(&states, payload.data() + layout.states + sizeof(states) * group, sizeof(states));
  const auto words = payload.subspan(layout.words + 2 * first, 2 * (end - first));
  if (!DecodeGroup(call.coding, states, words, &codes)) return false;
  call.ForEachBlock(group, [&](const Place& place) {
    const uint8_t byte = codes.scales[place.index];
    if (byte == gauss::kNonfiniteBlock) {
      FillNan<kMaxBlock>(memory.values);
    } else if (byte == gauss::kZeroBlock) {
      std::fill_n(memory.values, kMaxBlock, 0.0f);
    } else {
      const gauss::BlockScale scale(byte, exponent, std::bit_width(place.size) - 1);
      call.kernels.decode(call.units.unit, scale, kSignBits.value, memory.codes + place.first,
                          memory.numbers + place.first, place.size, memory.values);
    }
    StoreElements(out, place.offset, place.count, memory.values);
  });
  return true;
}

}  // namespace

uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* payload, uint64_t* nonfinite) {
  const Call call(in.shape, params);
  const Layout& layout = call.layout;
  const RoundingNoise noise(context);
  std::memcpy(payload, &noise.block(), sizeof(Philox::Counter));
  std::memset(payload + layout.exponents - 16, 0, 16);  // the paddings of the sections
  std::memset(payload + layout.states - 16, 0, 16);
  std::atomic<uint64_t> found = 0;
  ForRanges(context.parallel, layout.groups, 1, kSmall, [&](uint64_t first, uint64_t end) {
    for (uint64_t group = first; group < end; ++group) {
      found += EncodeGroupAt(in, call, noise, group, payload);
    }
  });
  *nonfinite += found;
  const uint64_t words = MoveTogether(layout, payload);
  const uint64_t end = layout.words + 2 * words;
  std::memset(payload + end, 0, PayloadBytes(layout, words) - end);
  return PayloadBytes(layout, words);
}

Status Decode(std::span<const std::byte> payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out) {
  const Call call(out.shape, params);
  const Layout& layout = call.layout;
  if (payload.size() < layout.words) {
    return InvalidArgument("expected a payload of dither of at least {} bytes, got {}",
                           layout.words, payload.size());
  }
  const uint64_t words = LoadU64(payload.data() + layout.ends + 8 * (layout.groups - 1));
  if (words > payload.size() || payload.size() != PayloadBytes(layout, words)) {
    return InvalidArgument("the blob says that it has {} words; its payload has {} bytes", words,
                           payload.size());
  }
  const RoundingNoise noise = NoiseOf(payload.data());
  std::atomic<bool> bad = false;
  ForRanges(parallel, layout.groups, 1, kSmall, [&](uint64_t first, uint64_t end) {
    for (uint64_t group = first; group < end; ++group) {
      if (!DecodeGroupAt(payload, call, noise, group, out)) bad = true;
    }
  });
  if (bad) {
    return absl::InvalidArgumentError("the blob's words, states or exponents are none of dither");
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::dither::cpu
#endif  // HWY_ONCE
