#include "worker/stage/passes/slice_past.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

namespace longhaul::worker {
namespace {

// Without a graph it is a copy: what a product gave would stay whole for the sake of its part.
at::Tensor LeafOf(const at::Tensor& tensor) {
  const at::Tensor outside = at::GradMode::is_enabled() ? tensor.detach() : tensor.detach().clone();
  return outside.set_requires_grad(true);
}

at::Tensor LeafThatStays(const at::Tensor& like) {
  const at::NoGradGuard no_grad;
  at::Tensor leaf = at::empty_like(like).set_requires_grad(true);
  leaf.mutable_grad() = at::zeros_like(leaf);
  return leaf;
}

void Refill(const at::Tensor& leaf, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  leaf.detach().copy_(values.detach());
  leaf.grad().zero_();
}

}  // namespace

std::shared_ptr<MicrobatchPast> MicrobatchPast::ThatStays(const MicrobatchPast& like) {
  auto past = std::make_shared<MicrobatchPast>(like.slices);
  past->stays = true;
  for (const std::vector<KeysAndValues>& of_block : like.leaves) {
    std::vector<KeysAndValues>& leaves = past->leaves.emplace_back();
    for (const KeysAndValues& leaf : of_block) {
      leaves.push_back({LeafThatStays(leaf.keys), LeafThatStays(leaf.values)});
    }
  }
  return past;
}

void SlicePast::Keep(size_t block, const KeysAndValues& new_ones) {
  std::vector<KeysAndValues>& leaves = microbatch_->leaves[block];
  if (microbatch_->stays) {
    Refill(leaves[index_].keys, new_ones.keys);
    Refill(leaves[index_].values, new_ones.values);
  } else {
    leaves.push_back({LeafOf(new_ones.keys), LeafOf(new_ones.values)});
  }
}

KeysAndValues SlicePast::Extend(size_t block, const KeysAndValues& new_ones) {
  auto& of_blocks = microbatch_->leaves;
  if (of_blocks.size() <= block) of_blocks.resize(block + 1);
  std::vector<at::Tensor> keys, values;
  for (uint32_t earlier = 0; earlier < index_; ++earlier) {
    keys.push_back(of_blocks[block][earlier].keys);
    values.push_back(of_blocks[block][earlier].values);
  }
  if (!is_last()) {
    if (!again_) Keep(block, new_ones);
    if (at::GradMode::is_enabled()) made_.emplace_back(block, new_ones);
  }
  if (keys.empty()) return new_ones;
  keys.push_back(new_ones.keys);
  values.push_back(new_ones.values);
  return {at::cat(keys, 2), at::cat(values, 2)};
}

KeysAndValues ReferencePast::Extend(size_t block, const KeysAndValues& new_ones) {
  if (microbatch_->slices == 1) return new_ones;
  auto& of_blocks = microbatch_->reference;
  if (of_blocks.size() <= block) of_blocks.resize(block + 1);
  std::vector<KeysAndValues>& of_slices = of_blocks[block];
  const bool is_last = index_ + 1 == microbatch_->slices;
  std::vector<at::Tensor> keys, values;
  for (uint32_t earlier = 0; earlier < index_; ++earlier) {
    keys.push_back(of_slices[earlier].keys);
    values.push_back(of_slices[earlier].values);
  }
  if (!is_last) {
    of_slices.resize(index_ + 1);
    // Copies: what a product gave would stay whole for the sake of its part.
    of_slices[index_] = {new_ones.keys.clone(), new_ones.values.clone()};
  } else if (!microbatch_->stays) {
    of_slices.clear();
  }
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
    if (!microbatch_->stays) leaf = {};
  }
  made_.clear();
}

}  // namespace longhaul::worker
