#include "worker/stage/network.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <cmath>

#include "worker/stage/gpt.h"
#include "worker/stage/llama.h"
#include "worker/stage/torch_device.h"

namespace longhaul::worker {
namespace {

// Autocast of a device to bf16 while it lives. Casts of parameters are made once a step, for all
// its forwards (ForgetCasts).
class Autocast {
 public:
  Autocast(at::DeviceType device, bool bf16)
      : device_(device), was_enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, bf16);
    if (!bf16) return;
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(true);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() { at::autocast::set_autocast_enabled(device_, was_enabled_); }

 private:
  const at::DeviceType device_;
  const bool was_enabled_;
};

}  // namespace

std::unique_ptr<Network> Network::Create(const StageOptions& options) {
  switch (options.model.family) {
    case ModelFamily::kLlama:
      return std::make_unique<Llama>(options);
    case ModelFamily::kGpt:
      break;
  }
  return std::make_unique<Gpt>(options);
}

Network::Network(const StageOptions& options)
    : first_(options.first),
      last_(options.last),
      bf16_(options.train.dtype == ComputeDtype::kBf16),
      block_count_(options.layers),
      residual_deviation_(kInitialDeviation / std::sqrt(2.0 * options.model.layers)),
      maker_(options.train.seed, TorchDevice(options.device)) {}

at::Tensor Network::Forward(const at::Tensor& input) const {
  const Autocast autocast(input.device().type(), bf16_);
  at::Tensor x = first_ ? Embed(input) : input;
  for (size_t block = 0; block < block_count_; ++block) x = RunBlock(block, x);
  return last_ ? Logits(x) : x;
}

void Network::ForgetCasts() {
  at::autocast::clear_cache();
}

at::Tensor Network::Loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(at::kFloat),
                                targets.reshape({-1}));
}

}  // namespace longhaul::worker
