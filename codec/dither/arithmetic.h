// The computations of format.h for a single element and for a single coding step of a lane. CPU and
// GPU kernels share these functions.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/dither/format.h"
#include "codec/dither/tables.h"

namespace longhaul::codec::dither {

// The bits of the floats 1.5 2^23 and 1.5 2^23 - 2^15. Step 6 adds k, the element's random number,
// to kIntegersOfNumber. Floats from 2^23 to 2^24 are the integers, so adding an integer to the bits
// adds the integer to the value.
inline constexpr uint32_t kIntegers = 0x4b400000;
inline constexpr uint32_t kIntegersOfNumber = kIntegers - 0x8000;

// A *code* is a byte: its low seven bits are symbol + 64, the highest bit says whether |u| > 1/4
// (the outer bit).
inline constexpr uint32_t kSymbolOfZero = 64, kOuter = 128;
inline constexpr uint32_t kSymbolBits = 7, kSymbols = 128;
// The low seven bits of a code by which the decoder marks an escape. No symbol gives these bits:
// values of a block are at most 34 steps, so symbols are from -35 to 34.
inline constexpr uint32_t kEscape = 127;

// Returns the outer bit for an element's random number.
inline constexpr uint32_t OuterBit(uint32_t number) {
  return (~(number >> 15 ^ number >> 14) & 1) * kOuter;
}
// Returns -1 if u < 0, otherwise 0. m ^ Mirror is the symbol, and symbol ^ Mirror is m.
inline constexpr int32_t Mirror(uint32_t number) {
  return static_cast<int32_t>(number >> 15) - 1;
}
// Returns an element's code. `sum_bits`: the bits of s in step 6.
inline constexpr uint32_t CodeOf(uint32_t sum_bits, uint32_t number) {
  const int32_t m = static_cast<int32_t>(sum_bits - kIntegers) >> 16;
  return static_cast<uint32_t>((m ^ Mirror(number)) + static_cast<int32_t>(kSymbolOfZero)) |
         OuterBit(number);
}
// Returns R of an element.
inline constexpr int32_t RestoredOf(uint32_t code, uint32_t number) {
  const auto symbol =
      static_cast<int32_t>(code & (kSymbols - 1)) - static_cast<int32_t>(kSymbolOfZero);
  return ((symbol ^ Mirror(number)) + 1) * 0x20000 - static_cast<int32_t>(2 * number + 1);
}

// States of lanes: the tables' frequencies add up to 2^12, and a state is at least 2^16.
inline constexpr uint32_t kTableBits = 12, kTableSize = 1u << kTableBits;
inline constexpr uint32_t kLeastState = 1u << 16;

// A symbol's interval in the table: [start, start + frequency). The reciprocal replaces a division:
// floor(x / frequency) = floor(floor(x reciprocal 2^-32) 2^-shift) for x below 2^20 frequency.
struct Interval {
  uint32_t reciprocal;
  uint16_t frequency, start;
  uint32_t shift;
};

// Returns whether a lane must put out a word before it codes a symbol of this frequency.
inline constexpr bool MustShrink(uint32_t state, uint32_t frequency) {
  return state >= frequency << (32 - kTableBits);
}
// Returns the state after coding a symbol. MustShrink() is false.
inline constexpr uint32_t Push(uint32_t state, const Interval& interval) {
  const auto quotient =
      static_cast<uint32_t>(uint64_t{state} * interval.reciprocal >> 32) >> interval.shift;
  return state + interval.start + quotient * (kTableSize - interval.frequency);
}
// Returns the state before Push(). If it is below kLeastState, the encoder's lane had put out a
// word.
inline constexpr uint32_t Pop(uint32_t state, const Interval& interval) {
  return interval.frequency * (state >> kTableBits) + (state & (kTableSize - 1)) - interval.start;
}

// PushRaw and PopRaw are Push and Pop for the seven bits that belong to an escape. RawOf returns
// the seven bits that PushRaw put into `state`.
inline constexpr uint32_t kRawShift = kTableBits - kSymbolBits, kRawFrequency = 1u << kRawShift;
inline constexpr uint32_t PushRaw(uint32_t state, uint32_t symbol) {
  return (state >> kRawShift << kTableBits) | symbol << kRawShift | (state & (kRawFrequency - 1));
}
inline constexpr uint32_t RawOf(uint32_t state) {
  return (state & (kTableSize - 1)) >> kRawShift;
}
inline constexpr uint32_t PopRaw(uint32_t state) {
  return (state >> kTableBits << kRawShift) | (state & (kRawFrequency - 1));
}

// Returns the first state of a lane, from the scale bytes of two blocks.
inline constexpr uint32_t FirstState(uint32_t scale, uint32_t next_scale) {
  return kLeastState | scale | next_scale << 8;
}
// Returns whether the decoder may end with this state.
inline constexpr bool EndsWell(uint32_t state) {
  return state >> 16 == 1;
}

// Returns whether a code's symbol is outside the table. `reach`: kReach of the table.
inline constexpr bool Escapes(uint32_t code, int reach) {
  return (code & (kSymbols - 1)) - (kSymbolOfZero - static_cast<uint32_t>(reach)) >=
         2 * static_cast<uint32_t>(reach);
}

// The intervals, indexed by code. All codes of escapes have the same interval.
template <int kHalfBits>
struct Intervals {
  constexpr Intervals() {
    using From = Tables<kHalfBits>;
    for (uint32_t outer = 0; outer < 2; ++outer) {
      uint32_t start = 0;
      for (int k = 0; k <= 2 * From::kReach; ++k) {
        const uint32_t frequency = From::kFrequencies[outer][k];
        const Interval interval = Make(frequency, start);
        start += frequency;
        if (k < 2 * From::kReach) {
          of_code[outer * kOuter + kSymbolOfZero + static_cast<uint32_t>(k - From::kReach)] =
              interval;
          continue;
        }
        for (uint32_t code = outer * kOuter; code < (outer + 1) * kOuter; ++code) {
          if (Escapes(code, From::kReach)) of_code[code] = interval;
        }
      }
      sound = sound && start == kTableSize;
    }
  }
  constexpr Interval Make(uint32_t frequency, uint32_t start) {
    const auto shift = static_cast<uint32_t>(std::bit_width(frequency - 1)) - 1;
    const uint64_t power = uint64_t{1} << (32 + shift);
    const uint64_t reciprocal = (power + frequency - 1) / frequency;
    // The rounding error of the reciprocal, times the largest x, must not change the quotient.
    sound = sound && frequency >= 2 && frequency < kTableSize && reciprocal >> 32 == 0 &&
            (reciprocal * frequency - power) * frequency <= power >> (32 - kTableBits);
    return {static_cast<uint32_t>(reciprocal), static_cast<uint16_t>(frequency),
            static_cast<uint16_t>(start), shift};
  }
  Interval of_code[2 * kOuter] = {};
  bool sound = true;
};
static_assert(Intervals<2>().sound && Intervals<3>().sound && Intervals<4>().sound &&
              Intervals<6>().sound);

// For each of the two tables: the symbol (kEscape for an escape) for each value of a state's low 12
// bits.
template <int kHalfBits>
struct Slots {
  constexpr Slots() {
    using From = Tables<kHalfBits>;
    uint32_t slot = 0;
    for (uint32_t outer = 0; outer < 2; ++outer) {
      for (int k = 0; k <= 2 * From::kReach; ++k) {
        const uint32_t symbol = k == 2 * From::kReach
                                    ? kEscape
                                    : kSymbolOfZero + static_cast<uint32_t>(k - From::kReach);
        for (uint32_t left = From::kFrequencies[outer][k]; left > 0; --left) {
          symbols[slot++] = static_cast<uint8_t>(symbol);
        }
      }
    }
  }
  alignas(16) uint8_t symbols[2 * kTableSize] = {};
};
// Returns the index in Slots of a state's symbol. `outer_bit`: of the element.
inline constexpr uint32_t SlotOf(uint32_t state, uint32_t outer_bit) {
  static_assert(kOuter << 5 == kTableSize);
  return outer_bit << 5 | (state & (kTableSize - 1));
}

}  // namespace longhaul::codec::dither
