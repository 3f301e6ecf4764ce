#include "codec/dither/cpu/rans.h"

#include "codec/tile.h"

namespace longhaul::codec::dither::cpu {
namespace {

template <int kHalfBits>
constexpr Intervals<kHalfBits> kIntervalsOf;
template <int kHalfBits>
constexpr Slots<kHalfBits> kSlotsOf;

template <int kHalfBits>
constexpr Coding kCoding = {kIntervalsOf<kHalfBits>.of_code, kSlotsOf<kHalfBits>.symbols,
                            Tables<kHalfBits>::kReach};

// Puts out the low half of a state where what comes next needs it.
inline uint32_t Shrunk(uint32_t state, uint32_t frequency, uint16_t** out) {
  if (!MustShrink(state, frequency)) return state;
  *(*out)++ = static_cast<uint16_t>(state);
  return state >> 16;
}

// Words from the last to the first.
class Words {
 public:
  explicit Words(std::span<const std::byte> bytes) : bytes_(bytes), left_(bytes.size() / 2) {}
  bool empty() const { return left_ == 0; }
  // False: a word is missing.
  bool missing() const { return missing_; }
  uint32_t Grown(uint32_t state) {
    if (state >= kLeastState) return state;
    if (left_ == 0) {
      missing_ = true;
      return kLeastState;
    }
    --left_;
    return state << 16 | LoadU16(bytes_.data() + 2 * left_);
  }

 private:
  const std::span<const std::byte> bytes_;
  size_t left_;
  bool missing_ = false;
};

bool AnyEscapes(const uint8_t* codes, int reach) {
  bool any = false;
  for (uint32_t lane = 0; lane < kLanes; ++lane) any |= Escapes(codes[lane], reach);
  return any;
}

}  // namespace

Coding CodingOf(uint32_t half_bits) {
  return ForHalfBits(half_bits, []<int kHalfBits>() { return kCoding<kHalfBits>; });
}

size_t EncodeGroup(const Coding& coding, const GroupCodes& group, uint16_t* words,
                   LaneStates* states) {
  uint32_t x[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    x[lane] = FirstState(group.scales[2 * lane], group.scales[2 * lane + 1]);
  }
  uint16_t* out = words;
  for (size_t step = 0; step < group.codes.size(); step += kLanes) {
    const uint8_t* const codes = group.codes.data() + step;
    if (AnyEscapes(codes, coding.reach)) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if (!Escapes(codes[lane], coding.reach)) continue;
        x[lane] = PushRaw(Shrunk(x[lane], kRawFrequency, &out), codes[lane] & (kSymbols - 1));
      }
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const Interval& interval = coding.intervals[codes[lane]];
      x[lane] = Push(Shrunk(x[lane], interval.frequency, &out), interval);
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) states->of[lane] = x[lane];
  return static_cast<size_t>(out - words);
}

bool DecodeGroup(const Coding& coding, LaneStates states, std::span<const std::byte> words,
                 GroupCodes* group) {
  uint32_t* const x = states.of;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (x[lane] < kLeastState) return false;
  }
  Words left(words);
  for (size_t step = group->codes.size(); step > 0; step -= kLanes) {
    uint8_t* const codes = group->codes.data() + step - kLanes;
    uint32_t escaped = 0;
    for (uint32_t lane = kLanes; lane-- > 0;) {
      const uint32_t symbol = coding.slots[SlotOf(x[lane], codes[lane])];
      codes[lane] = static_cast<uint8_t>(codes[lane] | symbol);
      x[lane] = left.Grown(Pop(x[lane], coding.intervals[codes[lane]]));
      escaped |= static_cast<uint32_t>(symbol == kEscape) << lane;
    }
    for (uint32_t lane = kLanes; escaped != 0 && lane-- > 0;) {
      if ((escaped >> lane & 1) == 0) continue;
      codes[lane] = static_cast<uint8_t>((codes[lane] & kOuter) | RawOf(x[lane]));
      x[lane] = left.Grown(PopRaw(x[lane]));
    }
    if (left.missing()) return false;
  }
  bool well = left.empty();
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    well = well && EndsWell(x[lane]);
    group->scales[2 * lane] = static_cast<uint8_t>(x[lane]);
    group->scales[2 * lane + 1] = static_cast<uint8_t>(x[lane] >> 8);
  }
  return well;
}

}  // namespace longhaul::codec::dither::cpu
