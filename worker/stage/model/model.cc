#include "worker/stage/model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "base/check.h"
#include "run/model/family.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/group/split_loss.h"
#include "worker/stage/model/gpt.h"
#include "worker/stage/model/llama.h"

namespace longhaul::worker {

namespace {

std::unique_ptr<Model> Make(const StageOptions& options, const RankGroup* group) {
  switch (options.model.family) {
    case ModelFamily::kLlama:
      return std::make_unique<Llama>(options, /*has_experts=*/false, group);
    case ModelFamily::kMoe:
      return std::make_unique<Llama>(options, /*has_experts=*/true, group);
    case ModelFamily::kGpt:
      break;
  }
  return std::make_unique<Gpt>(options, group);
}

FirstValues FirstValuesOf(const StageOptions& options) {
  if (options.timing_only) return {FirstValues::Kind::kAny};
  if (options.loads) {
    return {FirstValues::Kind::kZeros, options.train.seed, options.loads_adapters};
  }
  return {FirstValues::Kind::kSeeded, options.train.seed};
}

}  // namespace

std::unique_ptr<Model> Model::Create(const StageOptions& options, const RankGroup* group) {
  std::unique_ptr<Model> made = Make(options, group);
  LH_CHECK(made->maker_.done(), "family {} makes {} parameters, fewer than its descriptor has",
           ToString(options.model.family), made->maker_.made());
  return made;
}

Model::Model(const StageOptions& options, const RankGroup* group)
    : first_(options.first),
      last_(options.last),
      block_count_(options.layers),
      group_(group),
      maker_(options.model, options.parameters(), FirstValuesOf(options),
             TorchDevice(options.device),
             options.train.dtype == ComputeDtype::kBf16 ? at::kBFloat16 : at::kFloat,
             options.model.lora ? options.model.lora->scale() : 0, group) {}

at::Tensor Model::Leave(const at::Tensor& part) const {
  return group_ == nullptr ? part : group_->Leave(part);
}

at::Tensor Model::ToExperts(const at::Tensor& normed) const {
  return group_ == nullptr ? normed : group_->ToExperts(normed);
}

at::Tensor Model::OfExperts(const at::Tensor& given) const {
  if (group_ == nullptr) return given;
  return group_->OfExperts(given.to(compute_type()));
}

Model::Layout Model::LayoutOf(const at::Tensor& documents, int64_t first, int64_t tokens,
                              int64_t most_documents) {
  const int64_t most =
      documents.defined() && most_documents == 0 ? documents.numel() : most_documents;
  Layout layout{.sight = Sight(first, tokens, documents, most), .positions = {}, .first = first};
  layout.positions = layout.sight.Positions();
  return layout;
}

at::Tensor Model::RunBlocks(const at::Tensor& input, const Layout& layout, size_t begin,
                            size_t end) const {
  const bool embeds = first_ && begin == 0, ends = last_ && end == block_count_;
  at::Tensor x = embeds ? Embed(input, layout) : input;
  if (group_ != nullptr)
    x = embeds && group_->kind().partial() ? group_->Spread(x) : group_->Begin(x);
  for (size_t block = begin; block < end; ++block) x = RunBlock(block, x, layout);
  // The head computes with each rank's own part of x, so nothing is summed before it.
  if (group_ == nullptr || (ends && group_->kind().partial())) return x;
  return group_->End(x);
}

at::Tensor Model::Forward(const at::Tensor& input, const at::Tensor& documents) const {
  const at::Tensor x = RunBlocks(input, LayoutOf(documents, 0, input.size(1)), 0, block_count_);
  return last_ ? Logits(x) : x;
}

KeysAndValues Seen::Extend(size_t block, const KeysAndValues& new_ones) {
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  KeysAndValues& all = blocks_[block];
  all = all.keys.defined() ? KeysAndValues{at::cat({all.keys, new_ones.keys}, 2),
                                           at::cat({all.values, new_ones.values}, 2)}
                           : new_ones;
  return all;
}

at::Tensor Model::Extend(const at::Tensor& input, Seen* seen) const {
  const at::NoGradGuard no_grad;
  Layout layout = LayoutOf({}, seen->tokens, input.size(1));
  layout.past = seen;
  at::Tensor x = first_ ? Embed(input, layout) : input;
  for (size_t block = 0; block < block_count_; ++block) x = RunBlock(block, x, layout);
  seen->tokens += input.size(1);
  return last_ ? Logits(x.narrow(1, x.size(1) - 1, 1)) : x;
}

at::Tensor Model::Loss(const at::Tensor& logits, const at::Tensor& targets,
                       const at::Tensor& counted) const {
  if (counted.defined()) return SumOfLosses(logits, targets) / counted;
  if (group_ != nullptr) return SumOfLosses(logits, targets) / targets.numel();
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}));
}

at::Tensor Model::SumOfLosses(const at::Tensor& logits, const at::Tensor& targets) const {
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)});
  if (group_ != nullptr) {
    return SplitLosses(*group_, rows, targets.reshape({-1}), FirstLogit()).sum();
  }
  return at::cross_entropy_loss(rows, targets.reshape({-1}),
                                /*weight=*/{}, at::Reduction::Sum, kNoTarget);
}

at::Tensor Model::Losses(const at::Tensor& logits, const at::Tensor& targets) const {
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)});
  if (group_ != nullptr) {
    return SplitLosses(*group_, rows, targets.reshape({-1}), FirstLogit());
  }
  return at::cross_entropy_loss(rows, targets.reshape({-1}),
                                /*weight=*/{}, at::Reduction::None, kNoTarget);
}

}  // namespace longhaul::worker
