// The two kinds of rounding: to nearest (ties to even) and stochastic. Stochastic rounding uses one
// random number for each element. The number depends only on the tensor (its Context) and on the
// element's index. Decoders do not need the numbers, except the decoder of dither.
//
// The index counts the tensor's elements in memory order, padding included: codecs pad every token
// to whole tiles or blocks (the codec's format.h). A random number has 16 bits. It is
// half of a word of Philox4x32-7, whose blocks have four words of 32 bits. The number of the
// element with index i is in word i / 2 % 4: the lower 16 bits if i is even, else the upper ones.
// The block has the counter (i / 8 low, i / 8 high, a, b) and the key (c, d), where
//   (e, f, g, h) = Philox4x32-10(counter (step low, step high, microbatch, replica),
//                                key (seed low, seed high))
//   (a, b, c, d) = Philox4x32-10(counter (e, f, g, h), key (edge, direction)).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/philox.h"
#include "codec/codec.h"
#include "codec/scale.h"

namespace longhaul::codec {

enum class Rounding : uint8_t { kNearest = 0, kStochastic = 1 };
std::string_view ToString(Rounding rounding);
// Returns false for a text other than "nearest" and "stochastic"; *rounding then stays as it is.
bool ParseRounding(std::string_view text, Rounding* rounding);

// The random numbers for one tensor. Copies what it needs from the context. Any thread may use it.
class RoundingNoise {
 public:
  explicit RoundingNoise(const Context& context) {
    const uint64_t step = context.step.value();
    const Philox::Counter first =
        Philox::Generate({Low(step), High(step), context.microbatch.value(), context.replica},
                         {Low(context.seed), High(context.seed)});
    block_ =
        Philox::Generate(first, {context.edge.value(), static_cast<uint32_t>(context.direction)});
  }

  // Returns (a, b, c, d), from which GPU kernels compute the numbers.
  const Philox::Counter& block() const { return block_; }

  // Writes the numbers of the `count` elements from `index` on. `count` and `index` must be
  // multiples of kNoisesOfBlock.
  void Fill(uint64_t index, int count, uint16_t* out) const {
    for (int k = 0; k < count; k += kNoisesOfBlock) {
      const uint64_t block = (index + static_cast<uint64_t>(k)) / kNoisesOfBlock;
      const Philox::Counter words = Philox::Generate<kNoiseRounds>(
          {Low(block), High(block), block_[0], block_[1]}, {block_[2], block_[3]});
      for (int half = 0; half < kNoisesOfBlock; ++half) {
        out[k + half] =
            static_cast<uint16_t>(words[static_cast<size_t>(half) / 2] >> half % 2 * 16);
      }
    }
  }

  // Turns a random number into r, the middle of part `number` of 2^16 equal parts of [0, 1). The
  // mean of floor(u + r) over all numbers is about u.
  static constexpr float Middle(uint16_t number) {
    return static_cast<float>(2 * uint32_t{number} + 1) * 0x1p-17f;
  }

 private:
  static uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
  static uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
  Philox::Counter block_;
};

}  // namespace longhaul::codec
