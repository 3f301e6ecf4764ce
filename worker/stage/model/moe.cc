#include "worker/stage/model/moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "worker/stage/model/dispatch.h"

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct Weighing {
  bool normalizes = false;
  double balance = 0;
  int64_t tokens = 0;  // of all ranks
};

// What a token's experts weigh, (tokens, slots): their probabilities. Backward adds the gradient of
// the auxiliary loss. `probabilities` are the softmax of `scores`, `loads` the shares of the tokens
// that experts got.
struct Weigh : torch::autograd::Function<Weigh> {
  static Variable forward(AutogradContext* context, const Variable& /*scores*/,
                          const at::Tensor& probabilities, const at::Tensor& chosen,
                          const at::Tensor& loads, const Weighing& weighing) {
    context->save_for_backward({probabilities, chosen, loads});
    context->saved_data["normalizes"] = weighing.normalizes;
    context->saved_data["balance"] = weighing.balance / static_cast<double>(weighing.tokens);
    const at::Tensor weights = probabilities.gather(1, chosen);
    return weighing.normalizes ? weights / weights.sum(1, /*keepdim=*/true) : weights;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &probabilities = saved[0], &chosen = saved[1], &loads = saved[2];
    at::Tensor of_chosen = gradients[0];
    if (context->saved_data["normalizes"].toBool()) {
      const at::Tensor weights = probabilities.gather(1, chosen);
      const at::Tensor sum = weights.sum(1, /*keepdim=*/true);
      const at::Tensor of_sum = (-of_chosen * ((weights / sum) / sum)).sum(1, /*keepdim=*/true);
      of_chosen = of_chosen / sum + of_sum;
    }
    // Experts of a token differ.
    at::Tensor of_probabilities = at::zeros_like(probabilities).scatter_(1, chosen, of_chosen);
    if (const double balance = context->saved_data["balance"].toDouble(); balance > 0) {
      of_probabilities += loads * balance;
    }
    return {at::_softmax_backward_data(of_probabilities, probabilities, 1, at::kFloat), Variable(),
            Variable(), Variable(), Variable()};
  }
};

double BalanceOf(const StageOptions& options) {
  const ModelSpec& model = options.model;
  if (model.balance != Balance::kLoss) return 0;
  return model.balance_loss * model.experts / model.layers / options.train.microbatches;
}

}  // namespace

Mixture::Mixture(LayerMaker& make, const StageOptions& options, const std::string& prefix,
                 const RankGroup* group)
    : group_(group),
      experts_per_token_(options.model.experts_per_token),
      normalizes_(options.model.normalize_router),
      balance_(BalanceOf(options)),
      rate_(options.model.balance_rate),
      router_(make.MakeScorer(prefix + "gate")),
      bias_(options.model.balance == Balance::kBias
                ? make.MakeBalance(prefix + "gate.balance").detach()
                : at::Tensor()),
      experts_(make, prefix + "experts.", options.model.experts),
      counts_(options.model.experts),
      tokens_(options.model.experts) {
  if (options.model.shared_intermediate == 0) return;
  shared_ = MakeMlp(make, prefix + "shared_expert.");
  shared_gate_ = make.MakeLinear(prefix + "shared_expert_gate");
}

Mixture::Mlp Mixture::MakeMlp(LayerMaker& make, const std::string& prefix) {
  Mlp mlp;
  mlp.gate = make.MakeLinear(prefix + "gate_proj");
  mlp.up = make.MakeLinear(prefix + "up_proj");
  mlp.down = make.MakeLinear(prefix + "down_proj");
  return mlp;
}

at::Tensor Mixture::Mlp::operator()(const at::Tensor& x) const {
  const at::Tensor activated = at::silu(gate(x));
  return down(activated * up(x));
}

at::Tensor Mixture::operator()(const at::Tensor& x) const {
  const at::Tensor rows = x.flatten(0, 1);
  const at::Tensor scores = router_(rows);
  const at::Tensor probabilities = at::softmax(scores.detach(), 1);
  const at::Tensor ranking = bias_.defined() ? probabilities + bias_ : probabilities;
  const at::Tensor chosen = std::get<1>(at::topk(ranking, experts_per_token_, 1));
  const Dispatch dispatch(chosen, static_cast<int64_t>(counts_.size()), group_);
  const int64_t tokens = rows.size(0) * (group_ == nullptr ? 1 : group_->size());
  // A pass that is computed again counts once: the first time it has no graph.
  if (at::GradMode::is_enabled()) {
    std::ranges::transform(counts_, dispatch.counts(), counts_.begin(), std::plus<>());
  }
  const at::Tensor loads = at::tensor(dispatch.counts(), at::kFloat).div_(tokens).to(rows.device());
  const at::Tensor weights =
      Weigh::apply(scores, probabilities, chosen, loads, Weighing{normalizes_, balance_, tokens});

  at::Tensor sum = dispatch.Combine(experts_(dispatch.Send(rows), dispatch.held()), weights);
  if (shared_gate_.weight.defined()) {
    const at::Tensor shared = shared_(rows);
    sum = sum + at::sigmoid(shared_gate_(rows)) * shared;
  }
  return sum.view_as(x);
}

void Mixture::EndStep() const {
  if (bias_.defined()) {
    const double sum = std::accumulate(counts_.begin(), counts_.end(), 0.0);
    const double mean = sum / static_cast<double>(counts_.size());
    std::vector<double> moves;
    for (const int64_t count : counts_) {
      const double missing = mean - static_cast<double>(count);
      moves.push_back(missing > 0 ? rate_ : missing < 0 ? -rate_ : 0);
    }
    const at::NoGradGuard no_grad;
    bias_.add_(at::tensor(moves, at::kFloat).to(bias_.device()));
  }
  tokens_ = counts_;
  ForgetStep();
}

void Mixture::ForgetStep() const {
  std::ranges::fill(counts_, 0);
}

}  // namespace longhaul::worker
