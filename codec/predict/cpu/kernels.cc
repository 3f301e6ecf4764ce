#include "codec/predict/cpu/kernels.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/predict/cpu/kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/convert.h"
#include "codec/predict/arithmetic.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::predict::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using DHalf = hn::Rebind<uint16_t, DF>;
using VF = hn::Vec<DF>;
constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr uint32_t kMagnitude = 0x7fffffff, kNan = 0x7fc00000;

HWY_INLINE VF LoadBf16(const uint16_t* from) {
  const auto bits = hn::PromoteTo(DU(), hn::LoadU(DHalf(), from));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE VF Prediction(const PredictingRows& rows, size_t channel) {
  VF sum = hn::LoadU(DF(), rows.mean + channel);
  if (rows.token != nullptr) sum = hn::Add(sum, LoadBf16(rows.token + channel));
  return rows.pair == nullptr ? sum : hn::Add(sum, LoadBf16(rows.pair + channel));
}
HWY_INLINE float PredictionOf(const PredictingRows& rows, size_t channel) {
  float sum = rows.mean[channel];
  if (rows.token != nullptr) sum = sum + Bf16ToF32(rows.token[channel]);
  return rows.pair == nullptr ? sum : sum + Bf16ToF32(rows.pair[channel]);
}
// What is not finite becomes the one NaN that all machines write.
HWY_INLINE VF Finite(VF value) {
  const auto magnitude = hn::And(hn::BitCast(DU(), value), hn::Set(DU(), kMagnitude));
  const auto finite = hn::RebindMask(DF(), hn::Lt(magnitude, hn::Set(DU(), kF32Infinity)));
  return hn::IfThenElse(finite, value, hn::BitCast(DF(), hn::Set(DU(), kNan)));
}
HWY_INLINE float FiniteOf(float value) {
  const bool finite = (std::bit_cast<uint32_t>(value) & kMagnitude) < kF32Infinity;
  return finite ? value : std::bit_cast<float>(kNan);
}

void SubtractAll(const PredictingRows& rows, size_t channels, float* values) {
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const VF value = hn::Sub(hn::LoadU(DF(), values + c), Prediction(rows, c));
    hn::StoreU(Finite(value), DF(), values + c);
  }
  for (; c < channels; ++c) values[c] = FiniteOf(values[c] - PredictionOf(rows, c));
}

bool AddBackAll(const PredictingRows& rows, size_t channels, float* values) {
  constexpr uint32_t kLimit = std::bit_cast<uint32_t>(kTeachable);
  auto largest = hn::Zero(DU());
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const VF value = Finite(hn::Add(hn::LoadU(DF(), values + c), Prediction(rows, c)));
    hn::StoreU(value, DF(), values + c);
    const auto magnitude = hn::And(hn::BitCast(DU(), value), hn::Set(DU(), kMagnitude));
    largest = hn::Max(largest, magnitude);
  }
  bool teachable = hn::GetLane(hn::MaxOfLanes(DU(), largest)) < kLimit;
  for (; c < channels; ++c) {
    values[c] = FiniteOf(values[c] + PredictionOf(rows, c));
    teachable = teachable && (std::bit_cast<uint32_t>(values[c]) & kMagnitude) < kLimit;
  }
  return teachable;
}

void AccumulateAll(const float* values, const PredictingRows& rows, bool first, size_t channels,
                   float* sum) {
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    VF value = hn::Sub(hn::LoadU(DF(), values + c), Prediction(rows, c));
    if (!first) value = hn::Add(hn::LoadU(DF(), sum + c), value);
    hn::StoreU(value, DF(), sum + c);
  }
  for (; c < channels; ++c) {
    const float value = values[c] - PredictionOf(rows, c);
    sum[c] = first ? value : sum[c] + value;
  }
}

void AddAll(const float* values, size_t channels, float* sum) {
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const VF value = hn::LoadU(DF(), values + c);
    hn::StoreU(hn::Add(hn::LoadU(DF(), sum + c), value), DF(), sum + c);
  }
  for (; c < channels; ++c) sum[c] = sum[c] + values[c];
}

// What rows of both dtypes have in common: how they are read and written, and which bits the check
// is of.
struct RowOfBf16 {
  static VF Load(const uint16_t* from) { return LoadBf16(from); }
  static float LoadOne(const uint16_t* from) { return Bf16ToF32(*from); }
  // To nearest even, as F32ToBf16 does with what is finite.
  static auto Store(VF value, uint16_t* to) {
    const auto bits = hn::BitCast(DU(), value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(DU(), 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(DU(), 0x7fff)), odd));
    hn::StoreU(hn::TruncateTo(DHalf(), rounded), DHalf(), to);
    return rounded;
  }
  static uint32_t StoreOne(float value, uint16_t* to) { return *to = F32ToBf16(value); }
};
struct RowOfF32 {
  static VF Load(const float* from) { return hn::LoadU(DF(), from); }
  static float LoadOne(const float* from) { return *from; }
  static auto Store(VF value, float* to) {
    hn::StoreU(value, DF(), to);
    return hn::BitCast(DU(), value);
  }
  static uint32_t StoreOne(float value, float* to) {
    *to = value;
    return std::bit_cast<uint32_t>(value);
  }
};

template <class Row, class Element>
HWY_INLINE uint32_t LearnRow(const float* sum, float inverse, float rate, size_t channels,
                             Element* row) {
  auto weight = hn::Add(hn::Mul(hn::Iota(DU(), 0), hn::Set(DU(), 2 * kChannelWeight)),
                        hn::Set(DU(), kChannelWeight));
  const auto step = hn::Set(DU(), 2 * kChannelWeight * static_cast<uint32_t>(kLanes));
  auto hash = hn::Zero(DU());
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const VF old = Row::Load(row + c);
    const VF mean = hn::Mul(hn::LoadU(DF(), sum + c), hn::Set(DF(), inverse));
    const VF value = hn::Add(old, hn::Mul(hn::Set(DF(), rate), hn::Sub(mean, old)));
    hash = hn::Add(hash, hn::Mul(Row::Store(value, row + c), weight));
    weight = hn::Add(weight, step);
  }
  uint32_t lanes[kLanes];
  hn::StoreU(hash, DU(), lanes);
  uint32_t result = 0;
  for (const uint32_t lane : lanes) result += lane;
  for (; c < channels; ++c) {
    const float old = Row::LoadOne(row + c);
    const float value = old + rate * (sum[c] * inverse - old);
    result += Row::StoreOne(value, row + c) * ChannelWeight(static_cast<uint32_t>(c));
  }
  return result;
}

uint32_t LearnAll(const float* sum, float inverse, float rate, size_t channels, uint16_t* row) {
  return LearnRow<RowOfBf16>(sum, inverse, rate, channels, row);
}

uint32_t LearnMeanAll(const float* sum, float inverse, float rate, size_t channels, float* mean) {
  return LearnRow<RowOfF32>(sum, inverse, rate, channels, mean);
}

}  // namespace longhaul::codec::predict::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::predict::cpu {

HWY_EXPORT(SubtractAll);
HWY_EXPORT(AddBackAll);
HWY_EXPORT(AccumulateAll);
HWY_EXPORT(AddAll);
HWY_EXPORT(LearnAll);
HWY_EXPORT(LearnMeanAll);

void Subtract(const PredictingRows& rows, size_t channels, float* values) {
  HWY_DYNAMIC_DISPATCH(SubtractAll)(rows, channels, values);
}

bool AddBack(const PredictingRows& rows, size_t channels, float* values) {
  return HWY_DYNAMIC_DISPATCH(AddBackAll)(rows, channels, values);
}

void Accumulate(const float* values, const PredictingRows& rows, bool first, size_t channels,
                float* sum) {
  HWY_DYNAMIC_DISPATCH(AccumulateAll)(values, rows, first, channels, sum);
}

void Add(const float* values, size_t channels, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddAll)(values, channels, sum);
}

uint32_t Learn(const float* sum, float inverse, float rate, size_t channels, uint16_t* row) {
  return HWY_DYNAMIC_DISPATCH(LearnAll)(sum, inverse, rate, channels, row);
}

uint32_t LearnMean(const float* sum, float inverse, float rate, size_t channels, float* mean) {
  return HWY_DYNAMIC_DISPATCH(LearnMeanAll)(sum, inverse, rate, channels, mean);
}

}  // namespace longhaul::codec::predict::cpu
#endif  // HWY_ONCE
