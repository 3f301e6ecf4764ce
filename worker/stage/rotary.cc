#include "worker/stage/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>

namespace longhaul::worker {

Rotary::Rotary(int64_t context, int64_t channels, double theta, at::Device device) {
  const int64_t pairs = channels / 2;
  at::Tensor cosines = at::empty({context, 1, pairs}, at::kFloat);
  at::Tensor sines = at::empty({context, 1, pairs}, at::kFloat);
  float* cosine = cosines.data_ptr<float>();
  float* sine = sines.data_ptr<float>();
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const double radians_per_position =
        std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(channels));
    for (int64_t position = 0; position < context; ++position) {
      const double angle = static_cast<double>(position) * radians_per_position;
      cosine[position * pairs + pair] = static_cast<float>(std::cos(angle));
      sine[position * pairs + pair] = static_cast<float>(std::sin(angle));
    }
  }
  cosines_ = cosines.to(device);
  sines_ = sines.to(device);
}

at::Tensor Rotary::Turn(const at::Tensor& x) const {
  const int64_t pairs = cosines_.size(2);
  const at::Tensor first = x.narrow(3, 0, pairs), second = x.narrow(3, pairs, pairs);
  return at::cat({first * cosines_ - second * sines_, second * cosines_ + first * sines_}, 3)
      .to(x.scalar_type());
}

}  // namespace longhaul::worker
