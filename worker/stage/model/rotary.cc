#include "worker/stage/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace longhaul::worker {

namespace {

// The pair of channels that turns `turns` times within the original context, as a fraction.
double PairThatTurns(double turns, const ModelSpec& model) {
  const double channels = model.RotaryChannels();
  return channels * std::log(model.rope_original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(model.rope_theta));
}

// How much of a pair's frequency stays, 0 to 1; the rest is divided by the factor. YaRN, Section
// 3.2.
double ShareThatStays(double pair, const ModelSpec& model) {
  double low = PairThatTurns(model.rope_beta_fast, model);
  double high = PairThatTurns(model.rope_beta_slow, model);
  if (model.rope_whole_pairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, model.RotaryChannels() - 1.0);
  if (low == high) high += 0.001;
  return 1 - std::clamp((pair - low) / (high - low), 0.0, 1.0);
}

// The base whose longest wavelength is that of rope_theta, stretched as far as the context is
// longer than the original one.
double DynamicBase(const ModelSpec& model) {
  const double original = model.rope_original_context, channels = model.RotaryChannels();
  const double longer = std::max<double>(model.context, original) / original;
  return model.rope_theta *
         std::pow(model.rope_factor * longer - (model.rope_factor - 1), channels / (channels - 2));
}

// What a pair turns by at each position, after the scaling.
double Scaled(double radians, int64_t pair, const ModelSpec& model) {
  switch (model.rope_scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamic:  // in the base
      break;
    case RopeScaling::kLinear:
      return radians / model.rope_factor;
    case RopeScaling::kLlama3: {
      const double turns = model.rope_original_context * radians / (2 * std::numbers::pi);
      // 0: stretched; 1: as it was.
      const double share = std::clamp((turns - model.rope_low_frequency) /
                                          (model.rope_high_frequency - model.rope_low_frequency),
                                      0.0, 1.0);
      return radians * (share + (1 - share) / model.rope_factor);
    }
    case RopeScaling::kYarn: {
      const double share = ShareThatStays(static_cast<double>(pair), model);
      return radians * (share + (1 - share) / model.rope_factor);
    }
    case RopeScaling::kLongrope: {
      const bool is_long = model.context > model.rope_original_context;
      return radians / (is_long ? model.rope_long_factors : model.rope_short_factors)[pair];
    }
  }
  return radians;
}

// What cosines and sines are multiplied by.
double AttentionFactor(const ModelSpec& model) {
  const bool yarn = model.rope_scaling == RopeScaling::kYarn;
  if (!yarn && model.rope_scaling != RopeScaling::kLongrope) return 1;
  if (model.rope_attention_factor > 0) return model.rope_attention_factor;
  if (model.rope_factor <= 1) return 1;
  const double grown = std::log(model.rope_factor);
  return yarn ? 0.1 * grown + 1 : std::sqrt(1 + grown / std::log(model.rope_original_context));
}

}  // namespace

Rotary::Rotary(const ModelSpec& asked, at::Device device, bool windowed) {
  ModelSpec model = asked;
  if (windowed) {
    model.rope_theta = model.rope_theta_windowed;
    model.rope_scaling = RopeScaling::kNone;
  }
  const int64_t context = model.context, channels = model.RotaryChannels();
  const int64_t pairs = channels / 2;
  at::Tensor cosines = at::empty({context, 1, pairs}, at::kFloat);
  at::Tensor sines = at::empty({context, 1, pairs}, at::kFloat);
  float* cosine = cosines.data_ptr<float>();
  float* sine = sines.data_ptr<float>();
  const double base =
      model.rope_scaling == RopeScaling::kDynamic ? DynamicBase(model) : model.rope_theta;
  const double factor = AttentionFactor(model);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(channels);
    const double radians_per_position = Scaled(std::pow(base, exponent), pair, model);
    for (int64_t position = 0; position < context; ++position) {
      const double angle = static_cast<double>(position) * radians_per_position;
      cosine[position * pairs + pair] = static_cast<float>(factor * std::cos(angle));
      sine[position * pairs + pair] = static_cast<float>(factor * std::sin(angle));
    }
  }
  cosines_ = cosines.to(device);
  sines_ = sines.to(device);
}

at::Tensor Rotary::Turn(const at::Tensor& x, int64_t first) const {
  const int64_t pairs = cosines_.size(2);
  const at::Tensor cosines = cosines_.narrow(0, first, x.size(1));
  const at::Tensor sines = sines_.narrow(0, first, x.size(1));
  const at::Tensor one = x.narrow(3, 0, pairs), other = x.narrow(3, pairs, pairs);
  std::vector<at::Tensor> parts = {one * cosines - other * sines, other * cosines + one * sines};
  if (2 * pairs < x.size(3)) parts.push_back(x.narrow(3, 2 * pairs, x.size(3) - 2 * pairs));
  return at::cat(parts, 3).to(x.scalar_type());
}

}  // namespace longhaul::worker
