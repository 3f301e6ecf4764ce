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
using VF = hn::Vec<DF>;
constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr uint32_t kMagnitude = 0x7fffffff, kNan = 0x7fc00000;

HWY_INLINE VF Prediction(const RowPair& rows, size_t channel) {
  const VF token = hn::LoadU(DF(), rows.token + channel);
  return rows.pairs == nullptr ? token : hn::Add(token, hn::LoadU(DF(), rows.pairs + channel));
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

HWY_INLINE float PredictionOf(const RowPair& rows, size_t channel) {
  return rows.pairs == nullptr ? rows.token[channel] : rows.token[channel] + rows.pairs[channel];
}

void SubtractAll(const RowPair& rows, size_t channels, float* values) {
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const VF value = hn::Sub(hn::LoadU(DF(), values + c), Prediction(rows, c));
    hn::StoreU(Finite(value), DF(), values + c);
  }
  for (; c < channels; ++c) values[c] = FiniteOf(values[c] - PredictionOf(rows, c));
}

bool AddBackAll(const RowPair& rows, size_t channels, float* values) {
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

void AccumulateAll(const float* values, const float* minus, bool first, size_t channels,
                   float* sum) {
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    VF value = hn::LoadU(DF(), values + c);
    if (minus != nullptr) value = hn::Sub(value, hn::LoadU(DF(), minus + c));
    if (!first) value = hn::Add(hn::LoadU(DF(), sum + c), value);
    hn::StoreU(value, DF(), sum + c);
  }
  for (; c < channels; ++c) {
    const float value = minus == nullptr ? values[c] : values[c] - minus[c];
    sum[c] = first ? value : sum[c] + value;
  }
}

uint32_t LearnAll(const float* sum, float inverse, float rate, size_t channels, float* row) {
  auto weight = hn::Add(hn::Mul(hn::Iota(DU(), 0), hn::Set(DU(), 2 * kChannelWeight)),
                        hn::Set(DU(), kChannelWeight));
  const auto step = hn::Set(DU(), 2 * kChannelWeight * static_cast<uint32_t>(kLanes));
  auto hash = hn::Zero(DU());
  size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const VF old = hn::LoadU(DF(), row + c);
    const VF mean = hn::Mul(hn::LoadU(DF(), sum + c), hn::Set(DF(), inverse));
    const VF value = hn::Add(old, hn::Mul(hn::Set(DF(), rate), hn::Sub(mean, old)));
    hn::StoreU(value, DF(), row + c);
    hash = hn::Add(hash, hn::Mul(hn::BitCast(DU(), value), weight));
    weight = hn::Add(weight, step);
  }
  uint32_t lanes[kLanes];
  hn::StoreU(hash, DU(), lanes);
  uint32_t result = 0;
  for (const uint32_t lane : lanes) result += lane;
  for (; c < channels; ++c) {
    row[c] = row[c] + rate * (sum[c] * inverse - row[c]);
    result += std::bit_cast<uint32_t>(row[c]) * ChannelWeight(static_cast<uint32_t>(c));
  }
  return result;
}

}  // namespace longhaul::codec::predict::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::predict::cpu {

HWY_EXPORT(SubtractAll);
HWY_EXPORT(AddBackAll);
HWY_EXPORT(AccumulateAll);
HWY_EXPORT(LearnAll);

void Subtract(const RowPair& rows, size_t channels, float* values) {
  HWY_DYNAMIC_DISPATCH(SubtractAll)(rows, channels, values);
}

bool AddBack(const RowPair& rows, size_t channels, float* values) {
  return HWY_DYNAMIC_DISPATCH(AddBackAll)(rows, channels, values);
}

void Accumulate(const float* values, const float* minus, bool first, size_t channels, float* sum) {
  HWY_DYNAMIC_DISPATCH(AccumulateAll)(values, minus, first, channels, sum);
}

uint32_t Learn(const float* sum, float inverse, float rate, size_t channels, float* row) {
  return HWY_DYNAMIC_DISPATCH(LearnAll)(sum, inverse, rate, channels, row);
}

}  // namespace longhaul::codec::predict::cpu
#endif  // HWY_ONCE
