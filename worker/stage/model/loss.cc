#include "worker/stage/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "run/model/loss_chunks.h"

namespace longhaul::worker {
namespace {

int64_t TokensOf(const StageOptions& options) {
  return int64_t{options.train.microbatch_size} * options.slice_tokens();
}

at::Tensor LeafOf(const at::Tensor& tensor) {
  return tensor.detach().set_requires_grad(true);
}

}  // namespace

Loss::Loss(const StageOptions& options, const Model& network)
    : network_(network),
      tokens_(TokensOf(options)),
      chunk_(static_cast<int64_t>(
          model::LossChunksOf(static_cast<uint64_t>(tokens_), options.vocabulary_rows()).tokens)),
      keeps_logits_(options.recompute == Recompute::kNone && chunk_ == tokens_) {}

void Loss::SetTargets(at::Tensor targets, at::Tensor counted) {
  targets_ = std::move(targets);
  counted_ = std::move(counted);
}

at::Tensor Loss::RowsOf(const at::Tensor& tensor, int64_t begin) const {
  return tensor.narrow(0, begin, std::min(chunk_, tokens_ - begin));
}

at::Tensor Loss::OfChunk(const at::Tensor& hidden, int64_t begin) const {
  const at::Tensor logits = network_.Logits(hidden);
  if (chunk_ == tokens_) return network_.Loss(logits, targets_, counted_);
  const at::Tensor sum = network_.SumOfLosses(logits, RowsOf(targets_.reshape({-1}), begin));
  return counted_.defined() ? sum / counted_ : sum / tokens_;
}

at::Tensor Loss::Forward(const at::Tensor& hidden) {
  if (keeps_logits_ && at::GradMode::is_enabled()) {
    hidden_ = LeafOf(hidden);
    root_ = OfChunk(hidden_, 0);
    return root_.detach();
  }
  const at::NoGradGuard no_grad;
  if (chunk_ == tokens_) return OfChunk(hidden, 0);
  const at::Tensor rows = hidden.flatten(0, 1);
  at::Tensor loss = OfChunk(RowsOf(rows, 0), 0);
  for (int64_t begin = chunk_; begin < tokens_; begin += chunk_) {
    loss.add_(OfChunk(RowsOf(rows, begin), begin));
  }
  return loss;
}

at::Tensor Loss::Backward(const at::Tensor& hidden, const at::Tensor& start, bool keep) {
  if (keeps_logits_) {
    root_.backward(start, /*retain_graph=*/keep);
    root_.reset();
    return std::exchange(hidden_, {}).grad();
  }
  if (chunk_ == tokens_) {
    const at::Tensor leaf = LeafOf(hidden);
    OfChunk(leaf, 0).backward(start);
    return leaf.grad();
  }
  const at::Tensor rows = hidden.flatten(0, 1), gradient = at::empty_like(rows);
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const at::Tensor leaf = LeafOf(RowsOf(rows, begin));
    OfChunk(leaf, begin).backward(start);
    RowsOf(gradient, begin).copy_(leaf.grad());
  }
  return gradient.view(hidden.sizes());
}

}  // namespace longhaul::worker
