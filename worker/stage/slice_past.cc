#include "worker/stage/slice_past.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

namespace longhaul::worker {
namespace {

// Without a graph it is a copy: what a product gave would stay whole for the sake of its part.
at::Tensor LeafOf(const at::Tensor& tensor) {
  const at::Tensor outside = at::GradMode::is_enabled() ? tensor.detach() : tensor.detach().clone();
  return outside.set_requires_grad(true);
}

}  // namespace

KeysAndValues SlicePast::Extend(size_t block, const KeysAndValues& new_ones) {
  auto& of_blocks = microbatch_->leaves;
  if (of_blocks.size() <= block) of_blocks.resize(block + 1);
  std::vector<KeysAndValues>& leaves = of_blocks[block];
  std::vector<at::Tensor> keys, values;
  for (uint32_t earlier = 0; earlier < index_; ++earlier) {
    keys.push_back(leaves[earlier].keys);
    values.push_back(leaves[earlier].values);
  }
  if (!is_last()) {
    if (leaves.size() <= index_) {
      leaves.push_back({LeafOf(new_ones.keys), LeafOf(new_ones.values)});
    }
    if (at::GradMode::is_enabled()) made_.emplace_back(block, new_ones);
  }
  if (keys.empty()) return new_ones;
  keys.push_back(new_ones.keys);
  values.push_back(new_ones.values);
  return {at::cat(keys, 2), at::cat(values, 2)};
}

void SlicePast::TakeRoots(std::vector<at::Tensor>* roots, std::vector<at::Tensor>* gradients) {
  for (const auto& [block, made] : made_) {
    KeysAndValues& leaf = microbatch_->leaves[block][index_];
    const auto take = [&](const at::Tensor& root, const at::Tensor& gradient) {
      if (!root.requires_grad() || !gradient.defined()) return;
      roots->push_back(root);
      gradients->push_back(gradient);
    };
    take(made.keys, leaf.keys.grad());
    take(made.values, leaf.values.grad());
    leaf = {};
  }
  made_.clear();
}

}  // namespace longhaul::worker
