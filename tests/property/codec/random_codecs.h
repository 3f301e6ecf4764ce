// Random codecs and tensors for tests that compare two ways to the same bytes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec {

inline uint32_t Below(std::mt19937* generator, uint32_t bound) {
  return static_cast<uint32_t>((*generator)() % bound);
}

// Codecs that take every value of every parameter, not every pair of values.
inline std::vector<std::string> VariousCodecs() {
  std::vector<std::string> codecs = {"none", "fp16", "bf16", "aqsgd:bits=2", "aqsgd:bits=8", "zip"};
  constexpr const char* kRoundings[] = {"nearest", "stochastic"};
  for (uint32_t k = 0; k < 16; ++k) {
    codecs.push_back(fmt::format("fixed:bits={},tile={},rounding={}", 3 + k % 8, 32u << k % 3,
                                 kRoundings[k / 8]));
  }
  constexpr const char* kShares[] = {"0.8", "0", "0.3", "0.5", "1"};
  constexpr const char* kTaus[] = {"2", "0", "1", "1.5", "4", "1000", "inf"};
  for (uint32_t k = 0; k < 24; ++k) {
    const uint32_t tile = 32u << k % 3;
    const uint32_t tiles = k / 3 % 4;  // that are given their bits together
    codecs.push_back(fmt::format("tah:p={},tile={},alloc={},tau={},rounding={}", kShares[k % 5],
                                 tile, tiles == 0 ? "token" : std::to_string(tiles * tile),
                                 kTaus[k % 7], kRoundings[k / 12]));
  }
  for (uint32_t k = 0; k < 20; ++k) {
    codecs.push_back(fmt::format("gauss:bits={},block={}", 2 + k % 5, 64u << k / 5));
  }
  constexpr const char* kBits[] = {"1", "1.5", "2", "3"};
  for (uint32_t k = 0; k < 12; ++k) {
    codecs.push_back(fmt::format("dither:bits={},block={}", kBits[k % 4], 64u << k / 4));
  }
  constexpr const char* kFormats[] = {"e4m3", "e5m2", "int8"};
  for (uint32_t k = 0; k < 15; ++k) {
    codecs.push_back(fmt::format("taco:format={},block={}", kFormats[k % 3], 32u << k / 3));
  }
  for (uint32_t k = 0; k < 6; ++k) {
    codecs.push_back(fmt::format("predict:pairs={},rate={},prior={}/{}",
                                 k % 3 == 0 ? 0 : 1 << 3 * k, kShares[k % 5], k, codecs[7 * k]));
  }
  return codecs;
}

inline std::string RandomCodec(std::mt19937* generator) {
  static const std::vector<std::string> codecs = VariousCodecs();
  return codecs[Below(generator, static_cast<uint32_t>(codecs.size()))];
}

// Every place a magnitude of its own, some tiles of one kind: what comes up is meant to reach all
// branches, not to look like a network's activations.
inline std::vector<float> RandomContents(size_t count, std::mt19937* generator) {
  std::vector<float> values = Activations(count, (*generator)());
  const uint32_t kind = Below(generator, 8);
  if (kind == 0) {  // any bits at all
    for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>((*generator)()));
    return values;
  }
  const int exponent = static_cast<int>(Below(generator, 240)) - 125;
  if (kind <= 3) {
    for (float& value : values) value = std::ldexp(value, exponent);
  }
  // Stretches of one kind.
  for (uint32_t stretches = Below(generator, 6); stretches > 0 && count > 0; --stretches) {
    const size_t first = (*generator)() % count;
    const size_t length = std::min<size_t>(1 + Below(generator, 200), count - first);
    const uint32_t what = Below(generator, 7);
    for (size_t k = first; k < first + length; ++k) {
      if (what == 0) values[k] = 0;
      if (what == 1) values[k] = -0.0f;
      if (what == 2) values[k] = values[first];
      if (what == 3)
        values[k] =
            std::bit_cast<float>(static_cast<uint32_t>((*generator)() & 0x807fffff));  // subnormal
      if (what == 4) values[k] = std::ldexp(values[k], 60);
      if (what == 5) values[k] = std::ldexp(values[k], -90);
      if (what == 6) values[k] = k % 2 == 0 ? values[first] : -values[first];
    }
  }
  for (uint32_t specials = Below(generator, 4); specials > 0 && count > 0; --specials) {
    constexpr uint32_t kSpecials[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
                                      0x7f800001, 0x7f7fffff, 0xff7fffff, 0x00000001};
    const uint32_t last = kind == 1 ? 8 : 5;
    values[(*generator)() % count] = std::bit_cast<float>(kSpecials[Below(generator, last)]);
  }
  return values;
}

inline Context RandomContext(std::mt19937* generator) {
  Context context;
  context.seed = (uint64_t{(*generator)()} << 32) | (*generator)();
  context.step = Step((*generator)());
  context.replica = Below(generator, 5);
  context.edge = EdgeId(Below(generator, 9));
  context.direction = Below(generator, 2) == 0 ? Direction::kForward : Direction::kBackward;
  context.microbatch = Microbatch(Below(generator, 99));
  return context;
}

inline Shape RandomShape(std::mt19937* generator) {
  Shape shape{1 + Below(generator, 3), 1 + Below(generator, 12), 1 + Below(generator, 400)};
  if (Below(generator, 2) == 0) shape.channels = (1 + Below(generator, 4)) * 128;
  return shape;
}

}  // namespace longhaul::codec
