// The rANS coder of format.h: turns the codes of a group into words and back. It is scalar code:
// the 32 lanes do not depend on each other, so a processor executes several at a time. Pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/dither/arithmetic.h"

namespace longhaul::codec::dither::cpu {

// The tables for one value of `bits`. The pointers stay valid until the program ends.
struct Coding {
  const Interval* intervals;  // indexed by code
  const uint8_t* slots;       // indexed by SlotOf()
  int reach;
};
Coding CodingOf(uint32_t half_bits);

// The contents of a group: codes, and the scale bytes that its states carry.
struct GroupCodes {
  std::span<uint8_t> codes;      // one for each element; the size is a multiple of kLanes
  uint8_t scales[kGroupBlocks];  // 0 for missing blocks
};
struct LaneStates {
  uint32_t of[kLanes];
};

// Writes words and states. `words` must have room for Layout::group_words words. Returns the number
// of words.
size_t EncodeGroup(const Coding& coding, const GroupCodes& group, uint16_t* words,
                   LaneStates* states);

// Decodes words and states into the group. On entry, group->codes must have the right size, and
// only their outer bits. Returns false if no encoder writes these words and states.
bool DecodeGroup(const Coding& coding, LaneStates states, std::span<const std::byte> words,
                 GroupCodes* group);

}  // namespace longhaul::codec::dither::cpu
