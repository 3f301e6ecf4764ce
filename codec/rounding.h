// Nearest (ties to even) or stochastic rounding, the latter from random numbers that depend on what
// is encoded (Context) and on the element's index, and on nothing else. Decoding never needs them.
//
// Index of element k of tile t: t * tile + k, tiles counted over the whole tensor in memory order,
// every token rounded up to whole tiles. The numbers are words of Philox4x32-10: element i takes
// word i % 4 of the block with counter (i / 4 low, i / 4 high, a, b) and key (c, d), where
//   (e, f, g, h) = Philox(counter (step low, step high, microbatch, replica),
//                         key (seed low, seed high))
//   (a, b, c, d) = Philox(counter (e, f, g, h), key (edge, direction)).
#ifndef LONGHAUL_CODEC_ROUNDING_H_
#define LONGHAUL_CODEC_ROUNDING_H_

#include <cstdint>
#include <string_view>

#include "base/philox.h"
#include "codec/codec.h"

namespace longhaul::codec {

enum class Rounding : uint8_t { kNearest = 0, kStochastic = 1 };
std::string_view ToString(Rounding rounding);

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

  // (a, b, c, d), for kernels that draw on a GPU.
  const Philox::Counter& block() const { return block_; }

  // `count` numbers in [0, 1) for the elements from `index` on; both multiples of 4.
  void Fill(uint64_t index, int count, float* out) const {
    for (int k = 0; k < count; k += 4) {
      const uint64_t block = (index + static_cast<uint64_t>(k)) / 4;
      const Philox::Counter words =
          Philox::Generate({Low(block), High(block), block_[0], block_[1]}, {block_[2], block_[3]});
      for (int word = 0; word < 4; ++word) {
        out[k + word] = Philox::ToUnit(words[static_cast<size_t>(word)]);
      }
    }
  }

 private:
  static uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
  static uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
  Philox::Counter block_;
};

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_ROUNDING_H_
