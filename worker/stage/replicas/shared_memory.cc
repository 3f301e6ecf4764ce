#include "worker/stage/replicas/shared_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <cstddef>

namespace longhaul::worker {
namespace {

// Where `is_own` a tensor's own memory, else a copy in pages that the GPU can reach by itself.
void Show(const at::Tensor& tensor, bool is_own, at::Tensor* copy) {
  const at::Tensor dense = tensor.detach().contiguous();
  if (is_own) {
    *copy = dense;
    return;
  }
  if (!copy->defined() || !copy->is_cpu()) {
    *copy = at::empty_like(dense, dense.options().device(at::kCPU).pinned_memory(true));
  }
  copy->copy_(dense);
}

template <typename Number>
std::span<Number> SpanOf(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

std::vector<SharedParameter> SharedMemory::Read(const std::vector<Parameter>& parameters,
                                                SharedIn memory) {
  const at::NoGradGuard no_grad;
  std::vector<SharedParameter> shared;
  copies_.resize(parameters.size());
  for (size_t k = 0; k < parameters.size(); ++k) {
    const Parameter& parameter = parameters[k];
    if (parameter.balances) continue;
    copies_[k].is_own = parameter.value.is_cpu() || memory == SharedIn::kDevice;
    Show(parameter.value, copies_[k].is_own, &copies_[k].value);
    SharedParameter& one =
        shared.emplace_back(SharedParameter{.name = parameter.name,
                                            .shape = parameter.value.sizes().vec(),
                                            .decays = parameter.decays,
                                            .block_matrices = parameter.block_matrices,
                                            .counted_elsewhere = parameter.counted_elsewhere,
                                            .gradient = {},
                                            .value = SpanOf<float>(copies_[k].value)});
    if (!parameter.value.grad().defined()) continue;
    Show(parameter.value.grad(), copies_[k].is_own, &copies_[k].gradient);
    one.gradient = SpanOf<const float>(copies_[k].gradient);
  }
  return shared;
}

void SharedMemory::Write(const std::vector<Parameter>& parameters) const {
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < parameters.size(); ++k) {
    const Parameter& parameter = parameters[k];
    if (parameter.balances) continue;
    const at::Tensor& value = copies_[k].value;
    if (value.const_data_ptr() == parameter.value.const_data_ptr()) continue;
    parameter.value.detach().copy_(value);
  }
}

void SharedMemory::ForgetGradients() {
  for (Copies& copies : copies_) {
    if (copies.is_own) copies.gradient.reset();
  }
}

}  // namespace longhaul::worker
