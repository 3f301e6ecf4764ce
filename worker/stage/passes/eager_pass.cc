#include "worker/stage/passes/eager_pass.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "worker/stage/device/torch_device.h"

namespace longhaul::worker {

EagerPass::EagerPass(const StageOptions& options, const Model& network,
                     const std::shared_ptr<MicrobatchPast>& past, uint32_t index)
    : options_(options),
      network_(network),
      device_(TorchDevice(options.device)),
      first_token_(int64_t{index} * options.slice_tokens()),
      index_(index),
      microbatch_(past),
      past_(past, index),
      inputs_(options.recompute == Recompute::kBlocks ? std::max<size_t>(network.block_count(), 1)
                                                      : 1),
      loss_(options, network) {
  if (options.train.dpo && options.last) {
    pair_loss_.emplace(options, network, microbatch_->pairs, index);
  }
}

at::Tensor EagerPass::Forward(const PassInput& input) {
  const at::Tensor hidden = HiddenOf(CopyOf(input));
  return options_.last ? LossOf(hidden) : hidden;
}

PassInput EagerPass::CopyOf(const PassInput& input) const {
  const auto copy = [&](const at::Tensor& tensor, at::ScalarType type) {
    return tensor.to(at::TensorOptions(type).device(device_), /*non_blocking=*/false,
                     /*copy=*/true);
  };
  PassInput there{.source = copy(input.source, options_.first ? at::kLong : at::kFloat)};
  if (input.reference.defined()) there.reference = copy(input.reference, at::kFloat);
  if (input.targets.defined()) there.targets = copy(input.targets, at::kLong);
  if (input.counted.defined()) there.counted = copy(input.counted, at::kFloat);
  if (input.documents.defined()) there.documents = copy(input.documents, at::kLong);
  if (input.random.defined()) there.random = copy(input.random, at::kLong);
  there.most_documents = input.most_documents;
  return there;
}

at::Tensor EagerPass::Backward(const at::Tensor& gradient) {
  // A copy, because autograd may write into it, and because a group's boundary is on rank 0's
  // device.
  const at::Tensor start = options_.last
                               ? StartAtLoss()
                               : gradient.to(at::TensorOptions(at::kFloat).device(device_),
                                             /*non_blocking=*/false, /*copy=*/true);
  return BackwardOf(start, /*keep=*/false);
}

bool EagerPass::TellWhatIsFinal(std::function<void(uint32_t)> final) {
  if (network_.group() != nullptr) return false;
  final_ = std::move(final);
  return true;
}

at::Tensor EagerPass::StartAtLoss() const {
  return at::scalar_tensor(ShareInMicrobatch(options_) / options_.train.microbatches,
                           at::TensorOptions(at::kFloat).device(device_));
}

void EagerPass::KeepInputsIn(const std::vector<at::Tensor>& tensors) {
  std::copy(tensors.begin(), tensors.end(), inputs_.begin() + 1);
  inputs_stay_ = true;
}

at::Tensor EagerPass::HiddenOf(PassInput input) {
  input_ = std::move(input);
  const bool has_pairs = pair_loss_ && input_.targets.defined();
  if (has_pairs) {
    pair_loss_->SetTargets(input_.targets, input_.counted, input_.documents);
  } else {
    loss_.SetTargets(input_.targets, input_.counted);
  }
  inputs_[0] = input_.source;
  past_.Begin();
  Model::Layout layout = LayoutOfSlice();
  // First, so that the memory of its activations is free again when others are kept.
  const bool refers = options_.train.dpo && (has_pairs || !options_.last);
  const at::Tensor reference = refers ? RunReference(&layout) : at::Tensor();
  const Dropout::Pass dropout(network_.dropout(), input_.random, RowsOfSlice());
  const bool trains = at::GradMode::is_enabled();
  const at::AutoGradMode with_graph(trains && !recomputes());
  if (trains && !recomputes()) leaf_ = LeafOf(0);
  at::Tensor x = leaf_.defined() ? leaf_ : inputs_[0];
  for (size_t piece = 0; piece < inputs_.size(); ++piece) {
    if (piece > 0 && trains) KeepInput(piece, x);
    x = RunPiece(piece, x, layout);
  }
  if (leaf_.defined()) root_ = x;
  return reference.defined() ? at::cat({x.detach(), reference}) : x.detach();
}

at::Tensor EagerPass::LossOf(const at::Tensor& hidden) {
  return pair_loss_ ? pair_loss_->Forward(hidden) : loss_.Forward(hidden);
}

at::Tensor EagerPass::BackwardOf(const at::Tensor& start, bool keep) {
  const Model::Layout layout = recomputes() ? LayoutOfSlice() : Model::Layout();
  const Dropout::Pass dropout(network_.dropout(), recomputes() ? input_.random : at::Tensor(),
                              RowsOfSlice());
  past_.BeginAgain();
  at::Tensor gradient = start;
  for (size_t piece = inputs_.size(); piece-- > 0;) {
    if (recomputes()) {
      leaf_ = LeafOf(piece);
      root_ = RunPiece(piece, leaf_, layout);
    }
    if (options_.last && piece + 1 == inputs_.size()) {
      gradient = pair_loss_ ? pair_loss_->Backward(root_.detach(), start, keep)
                            : loss_.Backward(root_.detach(), start, keep);
      SayFinal(network_.block_count());
    }
    std::vector<at::Tensor> roots, gradients;
    if (root_.requires_grad()) {
      roots.push_back(root_);
      gradients.push_back(gradient);
    }
    past_.TakeRoots(&roots, &gradients);
    // A frozen embedding alone has nothing to compute.
    if (!roots.empty()) {
      torch::autograd::backward(roots, gradients, /*retain_graph=*/keep && !recomputes());
    }
    if (network_.group() != nullptr) network_.group()->overlap().RunDeferred();
    if (options_.recompute == Recompute::kBlocks) SayFinal(piece);
    root_.reset();
    gradient = leaf_.grad();
    leaf_.reset();
    if (!inputs_stay_) inputs_[piece].reset();
  }
  return gradient;
}

int64_t EagerPass::RowsOfSlice() const {
  return int64_t{options_.train.microbatch_size} * options_.slice_tokens();
}

Model::Layout EagerPass::LayoutOfSlice() {
  Model::Layout layout = Model::LayoutOf(input_.documents, first_token_, options_.slice_tokens(),
                                         input_.most_documents);
  layout.past = &past_;
  return layout;
}

at::Tensor EagerPass::RunReference(Model::Layout* layout) {
  const at::NoGradGuard no_grad;
  const AdapterSwitch::Off off(network_.adapters());
  const at::Tensor& source = options_.first ? input_.source : input_.reference;
  ReferencePast past(microbatch_.get(), index_);
  Past* const of_adapted = std::exchange(layout->past, &past);
  const at::Tensor hidden =
      network_.RunBlocks(source, *layout, 0, network_.block_count()).to(at::kFloat);
  layout->past = of_adapted;
  input_.reference.reset();
  if (!pair_loss_) return hidden;
  pair_loss_->TakeReference(hidden);
  return {};
}

at::Tensor EagerPass::RunPiece(size_t piece, const at::Tensor& x,
                               const Model::Layout& layout) const {
  const bool of_one_block = options_.recompute == Recompute::kBlocks;
  const size_t blocks = network_.block_count();
  const size_t end = of_one_block ? std::min(piece + 1, blocks) : blocks;
  if (network_.group() != nullptr || !at::GradMode::is_enabled() || piece == end) {
    return network_.RunBlocks(x, layout, piece, end).to(at::kFloat);
  }
  at::Tensor hidden = x;
  for (size_t block = piece; block < end; ++block) {
    hidden = network_.RunBlocks(hidden, layout, block, block + 1);
    if (block + 1 < end) SayFinalBefore(block + 1, hidden);
  }
  return hidden.to(at::kFloat);
}

void EagerPass::SayFinal(size_t block) const {
  if (final_ && block > 0) final_(static_cast<uint32_t>(block));
}

void EagerPass::SayFinalBefore(size_t block, const at::Tensor& input) const {
  if (!input.requires_grad()) return;
  input.register_hook([this, block](const at::Tensor&) { SayFinal(block); });
}

at::Tensor EagerPass::LeafOf(size_t piece) const {
  if (options_.first && piece == 0) return inputs_[0];
  return inputs_[piece].detach().set_requires_grad(true);
}

void EagerPass::KeepInput(size_t piece, const at::Tensor& x) {
  if (inputs_stay_) {
    inputs_[piece].copy_(x);
  } else {
    inputs_[piece] = x;
  }
}

}  // namespace longhaul::worker
