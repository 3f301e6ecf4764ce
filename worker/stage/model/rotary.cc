#include "worker/stage/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace longhaul::worker {

namespace {

// What a pair turns by at each position, after the scaling.
double Scaled(double radians, const ModelSpec& model) {
  switch (model.rope_scaling) {
    case RopeScaling::kNone:
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
  }
  return radians;
}

}  // namespace

Rotary::Rotary(const ModelSpec& model, at::Device device) {
  const int64_t context = model.context, channels = model.HeadChannels();
  const int64_t pairs = channels / 2;
  at::Tensor cosines = at::empty({context, 1, pairs}, at::kFloat);
  at::Tensor sines = at::empty({context, 1, pairs}, at::kFloat);
  float* cosine = cosines.data_ptr<float>();
  float* sine = sines.data_ptr<float>();
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(channels);
    const double radians_per_position = Scaled(std::pow(model.rope_theta, exponent), model);
    for (int64_t position = 0; position < context; ++position) {
      const double angle = static_cast<double>(position) * radians_per_position;
      cosine[position * pairs + pair] = static_cast<float>(std::cos(angle));
      sine[position * pairs + pair] = static_cast<float>(std::sin(angle));
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
  return at::cat({one * cosines - other * sines, other * cosines + one * sines}, 3)
      .to(x.scalar_type());
}

}  // namespace longhaul::worker
