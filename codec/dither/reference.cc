#include "codec/dither/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/philox.h"
#include "codec/dither/tables.h"
#include "codec/gauss/arithmetic.h"
#include "codec/rounding.h"

namespace longhaul::codec::dither {
namespace {

constexpr uint64_t kBlocksOfGroup = 64;
constexpr uint64_t kLanesOfGroup = 32;

template <int kHalfBits>
std::vector<uint32_t> Stored(bool outer) {
  const auto& table = Tables<kHalfBits>::kFrequencies[outer ? 1 : 0];
  return {std::begin(table), std::end(table)};
}

// kPerUnit and kUnit, by their definition.
double StepOf(const Params& params) {
  return std::exp2(2.047 - params.half_bits / 2.0);
}

struct Block {
  uint64_t offset = 0;  // of its first element in the tensor
  uint64_t count = 0;   // elements that are not padding
  uint64_t size = 0;
  uint64_t index = 0;  // of its first element among those of the tensor, with padding
};

std::vector<std::vector<Block>> Groups(const Shape& shape, const Params& params) {
  std::vector<std::vector<Block>> groups;
  uint64_t blocks = 0;
  uint64_t index = 0;
  for (uint64_t token = 0; token < uint64_t{shape.samples} * shape.tokens; ++token) {
    for (uint64_t channel = 0; channel < shape.channels; channel += params.block) {
      const uint64_t count = std::min<uint64_t>(params.block, shape.channels - channel);
      uint64_t size = 64;
      while (size < count) size *= 2;
      if (blocks++ % kBlocksOfGroup == 0) groups.emplace_back();
      groups.back().push_back({token * shape.channels + channel, count, size, index});
      index += size;
    }
  }
  return groups;
}

uint32_t NumberOf(const Philox::Counter& noise, uint64_t index) {
  const uint64_t block = index / 8;
  const Philox::Counter words = Philox::Generate<7>(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), noise[0], noise[1]},
      {noise[2], noise[3]});
  return words[index % 8 / 2] >> index % 2 * 16 & 0xffff;
}

void Transform(std::vector<float>* y) {
  for (size_t h = 1; h < y->size(); h *= 2) {
    for (size_t i = 0; i < y->size(); ++i) {
      if ((i & h) != 0) continue;
      const float a = (*y)[i];
      const float b = (*y)[i + h];
      (*y)[i] = a + b;
      (*y)[i + h] = a - b;
    }
  }
}

void ChangeSigns(std::vector<float>* y) {
  for (size_t k = 0; k < y->size(); ++k) {
    if ((gauss::kSigns[k / 32] >> k % 32 & 1) != 0) (*y)[k] = -(*y)[k];
  }
}

float SumOfSquares(const std::vector<float>& y) {
  std::vector<float> sums(y.size());
  for (size_t k = 0; k < y.size(); ++k) sums[k] = y[k] * y[k];
  for (size_t half = y.size() / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) sums[k] = sums[k] + sums[k + half];
  }
  return sums[0];
}

// What a block is before its scale is known relative to the group's.
struct Quantized {
  std::optional<int> q;  // none: zeros, or not finite
  bool finite = true;
  std::vector<int> m;
};

Quantized Quantize(std::span<const float> x, const Block& block, const Params& params,
                   const Philox::Counter& noise) {
  std::vector<float> y(x.begin() + static_cast<long>(block.offset),
                       x.begin() + static_cast<long>(block.offset + block.count));
  y.resize(block.size, 0.0f);
  Quantized result;
  float largest = 0;
  for (const float value : y) {
    result.finite = result.finite && std::isfinite(value);
    largest = std::max(largest, std::fabs(value));
  }
  float factor = 1;
  if (!result.finite || largest == 0) {
    std::ranges::fill(y, 0.0f);
  } else {
    const int exponent = std::ilogb(largest);
    for (float& value : y) value = std::ldexp(value, 1 - exponent);
    ChangeSigns(&y);
    const auto root = static_cast<int>(std::lround(2 * std::log2(double{SumOfSquares(y)})));
    Transform(&y);
    factor =
        static_cast<float>(std::exp2(-root / 4.0)) * static_cast<float>(65536 / StepOf(params));
    result.q = 4 * (exponent - 1) + root - 2 * std::ilogb(static_cast<double>(block.size));
  }
  for (size_t k = 0; k < y.size(); ++k) {
    const uint32_t number = NumberOf(noise, block.index + k);
    const auto sum = static_cast<int64_t>(std::nearbyint(double{y[k] * factor} + number));
    result.m.push_back(static_cast<int>((sum - 32768) >> 16));
  }
  return result;
}

// The coder's view of an element: its symbol and its table.
struct Coded {
  int symbol = 0;
  bool outer = false;
};

bool Outer(uint32_t number) {
  return number < 16384 || number >= 49152;
}

// One group's lanes.
class Coder {
 public:
  explicit Coder(const Params& params)
      : tables_{FrequenciesOf(params.half_bits, false), FrequenciesOf(params.half_bits, true)},
        reach_(static_cast<int>(tables_[0].size() / 2)) {}

  bool Escapes(int symbol) const { return symbol < -reach_ || symbol >= reach_; }
  void Push(uint64_t lane, uint64_t frequency, uint64_t start) {
    uint64_t& x = states[lane];
    if (x >= frequency << 20) {
      words.push_back(static_cast<uint16_t>(x));
      x >>= 16;
    }
    x = x / frequency * 4096 + start + x % frequency;
  }
  void PushSymbol(uint64_t lane, const Coded& coded) {
    const std::vector<uint32_t>& table = tables_[coded.outer ? 1 : 0];
    const size_t at =
        Escapes(coded.symbol) ? table.size() - 1 : static_cast<size_t>(coded.symbol + reach_);
    Push(lane, table[at],
         std::accumulate(table.begin(), table.begin() + static_cast<long>(at), uint64_t{0}));
  }
  void Pop(uint64_t lane, uint64_t frequency, uint64_t start) {
    uint64_t& x = states[lane];
    x = frequency * (x / 4096) + x % 4096 - start;
    if (x >= 65536) return;
    x = x << 16 | words.back();
    words.pop_back();
  }
  // The escape: reach.
  int PopSymbol(uint64_t lane, bool outer) {
    const std::vector<uint32_t>& table = tables_[outer ? 1 : 0];
    uint64_t start = 0;
    size_t at = 0;
    while (start + table[at] <= states[lane] % 4096) start += table[at++];
    Pop(lane, table[at], start);
    return static_cast<int>(at) - reach_;
  }

  std::vector<uint64_t> states = std::vector<uint64_t>(kLanesOfGroup);
  std::vector<uint16_t> words;

 private:
  const std::vector<uint32_t> tables_[2];
  const int reach_;
};

template <class Number>
void Append(Number number, std::vector<std::byte>* bytes) {
  for (size_t k = 0; k < sizeof(Number); ++k) {
    bytes->push_back(static_cast<std::byte>(static_cast<uint64_t>(number) >> 8 * k));
  }
}

void Align(std::vector<std::byte>* bytes) {
  while (bytes->size() % 16 != 0) bytes->push_back(std::byte{0});
}

// Reads numbers one after the other.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class Number>
  Number Take() {
    uint64_t value = 0;
    for (size_t k = 0; k < sizeof(Number); ++k) {
      value |= static_cast<uint64_t>(bytes_[at_++]) << 8 * k;
    }
    return static_cast<Number>(value);
  }
  void Align() { at_ = (at_ + 15) / 16 * 16; }

 private:
  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace

std::vector<uint32_t> FrequenciesOf(uint32_t half_bits, bool outer) {
  return ForHalfBits(half_bits, [&]<int kHalfBits>() { return Stored<kHalfBits>(outer); });
}

std::vector<std::byte> ReferencePayload(std::span<const float> x, const Shape& shape,
                                        const Params& params, const Context& context) {
  const Philox::Counter noise = RoundingNoise(context).block();
  std::vector<std::byte> ends, exponents, states, words;
  for (const std::vector<Block>& group : Groups(shape, params)) {
    std::vector<Quantized> blocks;
    std::optional<int> largest;
    for (const Block& block : group) {
      const Quantized& one = blocks.emplace_back(Quantize(x, block, params, noise));
      if (one.q.has_value()) largest = std::max(largest.value_or(*one.q), *one.q);
    }
    const int exponent = static_cast<int>(std::floor(largest.value_or(0) / 4.0));
    std::vector<uint64_t> scales(kBlocksOfGroup);
    std::vector<Coded> elements;
    for (size_t k = 0; k < group.size(); ++k) {
      if (!blocks[k].finite) scales[k] = 255;
      if (blocks[k].q.has_value()) {
        scales[k] = static_cast<uint64_t>(std::max(0, *blocks[k].q - 4 * exponent + 251));
      }
      for (size_t i = 0; i < blocks[k].m.size(); ++i) {
        const uint32_t number = NumberOf(noise, group[k].index + i);
        const int m = blocks[k].m[i];
        elements.push_back({number < 32768 ? -1 - m : m, Outer(number)});
      }
    }
    Coder coder(params);
    for (uint64_t lane = 0; lane < kLanesOfGroup; ++lane) {
      coder.states[lane] = 65536 + scales[2 * lane] + 256 * scales[2 * lane + 1];
    }
    for (size_t first = 0; first < elements.size(); first += kLanesOfGroup) {
      for (uint64_t lane = 0; lane < kLanesOfGroup; ++lane) {
        const Coded& coded = elements[first + lane];
        if (!coder.Escapes(coded.symbol)) continue;
        coder.Push(lane, 32, 32 * static_cast<uint64_t>(coded.symbol + 64));
      }
      for (uint64_t lane = 0; lane < kLanesOfGroup; ++lane) {
        coder.PushSymbol(lane, elements[first + lane]);
      }
    }
    for (const uint16_t word : coder.words) Append(word, &words);
    Append(uint64_t{words.size() / 2}, &ends);
    Append(static_cast<int16_t>(exponent), &exponents);
    for (const uint64_t state : coder.states) Append(static_cast<uint32_t>(state), &states);
  }
  std::vector<std::byte> payload;
  for (const uint32_t word : noise) Append(word, &payload);
  for (std::vector<std::byte>* section : {&ends, &exponents, &states, &words}) {
    payload.insert(payload.end(), section->begin(), section->end());
    Align(&payload);
  }
  return payload;
}

std::vector<float> ReferenceValues(std::span<const std::byte> payload, const Shape& shape,
                                   const Params& params) {
  const std::vector<std::vector<Block>> groups = Groups(shape, params);
  Reader reader(payload);
  Philox::Counter noise;
  for (uint32_t& word : noise) word = reader.Take<uint32_t>();
  std::vector<uint64_t> ends(groups.size());
  for (uint64_t& end : ends) end = reader.Take<uint64_t>();
  reader.Align();
  std::vector<int16_t> exponents(groups.size());
  for (int16_t& exponent : exponents) exponent = reader.Take<int16_t>();
  reader.Align();
  std::vector<Coder> coders(groups.size(), Coder(params));
  for (Coder& coder : coders) {
    for (uint64_t& state : coder.states) state = reader.Take<uint32_t>();
  }
  std::vector<float> values(shape.elements());
  for (size_t g = 0; g < groups.size(); ++g) {
    Coder& coder = coders[g];
    coder.words.resize(ends[g] - (g == 0 ? 0 : ends[g - 1]));
    for (uint16_t& word : coder.words) word = reader.Take<uint16_t>();
    std::vector<uint32_t> numbers;
    for (const Block& block : groups[g]) {
      for (uint64_t k = 0; k < block.size; ++k) {
        numbers.push_back(NumberOf(noise, block.index + k));
      }
    }
    std::vector<int> symbols(numbers.size());
    for (size_t first = numbers.size(); first > 0;) {
      first -= kLanesOfGroup;
      for (uint64_t lane = kLanesOfGroup; lane-- > 0;) {
        symbols[first + lane] = coder.PopSymbol(lane, Outer(numbers[first + lane]));
      }
      for (uint64_t lane = kLanesOfGroup; lane-- > 0;) {
        if (!coder.Escapes(symbols[first + lane])) continue;
        const uint64_t raw = coder.states[lane] % 4096 / 32;
        coder.Pop(lane, 32, 32 * raw);
        symbols[first + lane] = static_cast<int>(raw) - 64;
      }
    }
    size_t at = 0;
    for (size_t k = 0; k < groups[g].size(); ++k) {
      const Block& block = groups[g][k];
      const auto scale = static_cast<int>(coder.states[k / 2] >> k % 2 * 8 & 0xff);
      std::vector<float> y;
      for (uint64_t i = 0; i < block.size; ++i, ++at) {
        const int m = numbers[at] < 32768 ? -1 - symbols[at] : symbols[at];
        y.push_back(static_cast<float>((m + 1) * 131072 - static_cast<int>(2 * numbers[at] + 1)));
      }
      Transform(&y);
      const int d =
          4 * exponents[g] + scale - 251 - 2 * std::ilogb(static_cast<double>(block.size));
      const int power = static_cast<int>(std::floor(d / 4.0));
      const float quarter = static_cast<float>(std::exp2((d - 4 * power) / 4.0));
      const float first =
          static_cast<float>(StepOf(params) / 131072) * std::ldexp(quarter, power - power / 2);
      constexpr float kMost = std::numeric_limits<float>::max();
      for (float& value : y) {
        value = std::clamp(value * first * std::ldexp(1.0f, power / 2), -kMost, kMost);
      }
      ChangeSigns(&y);
      if (scale == 0) std::ranges::fill(y, 0.0f);
      if (scale == 255) std::ranges::fill(y, std::numeric_limits<float>::quiet_NaN());
      std::copy_n(y.begin(), block.count, values.begin() + static_cast<long>(block.offset));
    }
  }
  return values;
}

}  // namespace longhaul::codec::dither
