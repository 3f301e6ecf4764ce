#include "worker/stage/model/pair_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "run/model/loss_chunks.h"

namespace longhaul::worker {
namespace {

int64_t TokensOfPart(const StageOptions& options) {
  return int64_t{options.train.microbatch_size} * options.slice_tokens();
}

// A document has a token at least.
int64_t PairsInRow(int64_t context) {
  return (context + 1) / 2;
}

at::Tensor GradientLeaf(const at::Tensor& tensor) {
  return tensor.detach().set_requires_grad(true);
}

}  // namespace

PairLoss::PairLoss(const StageOptions& options, const Model& network,
                   std::shared_ptr<PairSums> sums, uint32_t index)
    : dpo_(*options.train.dpo),
      network_(network),
      sums_(std::move(sums)),
      is_first_(index == 0),
      is_last_(index + 1 == options.slices),
      first_token_(int64_t{index} * options.slice_tokens()),
      tokens_(TokensOfPart(options)),
      chunk_(static_cast<int64_t>(
          model::LossChunksOf(static_cast<uint64_t>(tokens_), options.vocabulary_rows()).tokens)),
      pairs_(int64_t{options.train.microbatch_size} * PairsInRow(options.model.context)),
      keeps_logits_(options.recompute == Recompute::kNone && chunk_ == tokens_) {}

void PairLoss::SetTargets(const at::Tensor& targets, const at::Tensor& counted,
                          const at::Tensor& documents) {
  const at::NoGradGuard no_grad;
  targets_ = targets.reshape({-1});
  counted_ = counted;
  const at::Tensor first_of_row =
      at::arange(documents.size(0), documents.options()).mul_(PairsInRow(documents.size(1)));
  const at::Tensor here = documents.narrow(1, first_token_, targets.size(1));
  pair_ = here.div(2, "floor").add_(first_of_row.unsqueeze(1)).reshape({-1});
  const at::Tensor sign = here.remainder(2).mul_(-2).add_(1).reshape({-1});
  signs_ = sign.mul_(targets_.ne(kNoTarget)).to(at::kFloat);
}

int64_t PairLoss::TokensFrom(int64_t begin) const {
  return std::min(chunk_, tokens_ - begin);
}

at::Tensor PairLoss::OfChunk(const at::Tensor& hidden, int64_t begin) const {
  return network_.Losses(network_.Logits(hidden), targets_.narrow(0, begin, TokensFrom(begin)));
}

at::Tensor PairLoss::OfAll(const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  if (chunk_ == tokens_) return OfChunk(hidden, 0);
  const at::Tensor rows = hidden.flatten(0, 1);
  const at::Tensor losses = at::empty({tokens_}, rows.options().dtype(at::kFloat));
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = TokensFrom(begin);
    losses.narrow(0, begin, count).copy_(OfChunk(rows.narrow(0, begin, count), begin));
  }
  return losses;
}

// In a fixed order on a GPU, too, where index_add_ has none.
void PairLoss::AddTo(at::Tensor* sums, const at::Tensor& of_tokens) const {
  if (is_first_) *sums = at::zeros({pairs_}, of_tokens.options().dtype(at::kDouble));
  const at::Tensor numbers = of_tokens.to(at::kDouble);
  if (sums->is_cuda()) {
    at::_index_put_impl_(*sums, {pair_}, numbers, /*accumulate=*/true, /*unsafe=*/true);
  } else {
    sums->index_add_(0, pair_, numbers);
  }
}

void PairLoss::TakeReference(const at::Tensor& hidden) {
  const at::NoGradGuard no_grad;
  AddTo(&sums_->reference, OfAll(hidden).to(at::kDouble).mul_(signs_));
}

at::Tensor PairLoss::Forward(const at::Tensor& hidden) {
  at::Tensor losses;
  if (keeps_logits_ && at::GradMode::is_enabled()) {
    hidden_ = GradientLeaf(hidden);
    root_ = OfChunk(hidden_, 0);
    losses = root_.detach();
  } else {
    losses = OfAll(hidden);
  }
  const at::NoGradGuard no_grad;
  AddTo(&sums_->own, losses.to(at::kDouble).mul_(signs_));
  AddTo(&sums_->chosen, signs_.gt(0));
  AddTo(&sums_->rejected, signs_.lt(0));
  if (!is_last_) return at::zeros({4}, sums_->own.options());
  // Cross-entropies are negative log-probabilities.
  const at::Tensor margins = (sums_->reference - sums_->own).mul_(dpo_.beta);
  const at::Tensor counts = sums_->chosen.gt(0).logical_and_(sums_->rejected.gt(0)).to(at::kDouble);
  const double wrong = dpo_.label_smoothing, right = 1 - wrong;
  // softplus(-m) is -log sigmoid(m).
  at::Tensor of_pairs = at::softplus(-margins).mul_(right);
  at::Tensor slopes = at::sigmoid(-margins).mul_(right);
  if (wrong > 0) {
    of_pairs.add_(at::softplus(margins), wrong);
    slopes.sub_(at::sigmoid(margins), wrong);
  }
  const at::Tensor divisor = counted_.to(at::kDouble);
  sums_->slopes = slopes.mul_(dpo_.beta).mul_(counts).div_(divisor);
  return at::stack({of_pairs.mul_(counts).sum().div_(divisor), counts.sum(),
                    margins.gt(0).mul(counts).sum(), (margins * counts).sum()});
}

at::Tensor PairLoss::Backward(const at::Tensor& hidden, const at::Tensor& start, bool keep) {
  const at::Tensor weights =
      sums_->slopes.index_select(0, pair_).mul_(signs_).to(at::kFloat).mul_(start);
  if (keeps_logits_) {
    root_.backward(weights, /*retain_graph=*/keep);
    root_.reset();
    return std::exchange(hidden_, {}).grad();
  }
  const at::Tensor rows = hidden.flatten(0, 1), gradient = at::empty_like(rows);
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = TokensFrom(begin);
    const at::Tensor leaf = GradientLeaf(rows.narrow(0, begin, count));
    OfChunk(leaf, begin).backward(weights.narrow(0, begin, count));
    gradient.narrow(0, begin, count).copy_(leaf.grad());
  }
  return gradient.view(hidden.sizes());
}

}  // namespace longhaul::worker
