#include "worker/stage/microbatch_pass.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "worker/stage/torch_device.h"

namespace longhaul::worker {
namespace {

// Computes as it goes.
class EagerPass final : public MicrobatchPass {
 public:
  EagerPass(const StageOptions& options, const Model& network)
      : options_(options), network_(network), device_(TorchDevice(options.device)) {}

  at::Tensor Forward(const PassInput& input) override {
    const auto copy = [&](const at::Tensor& tensor, at::ScalarType type) {
      return tensor.to(at::TensorOptions(type).device(device_), /*non_blocking=*/false,
                       /*copy=*/true);
    };
    PassInput there{.source = copy(input.source, options_.first ? at::kLong : at::kFloat)};
    if (options_.last) there.targets = copy(input.targets, at::kLong);
    if (input.counted.defined()) there.counted = copy(input.counted, at::kFloat);
    if (input.documents.defined()) there.documents = copy(input.documents, at::kLong);
    return ForwardOf(std::move(there));
  }

  at::Tensor Backward(const at::Tensor& gradient) override {
    // Autograd may write into what it is given.
    const at::Tensor start = options_.last
                                 ? StartAtLoss()
                                 : gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    return BackwardOf(start, /*keep=*/false);
  }

  // What backward starts with on the last stage: the loss's share in that of a step.
  at::Tensor StartAtLoss() const {
    return at::scalar_tensor(1.0 / options_.train.microbatches,
                             at::TensorOptions(at::kFloat).device(device_));
  }
  // The two with tensors that are where and what the network needs. With `keep` what forward left
  // stays.
  at::Tensor ForwardOf(PassInput input) {
    input_ = std::move(input);
    if (options_.recompute) {
      const at::NoGradGuard no_grad;
      return Run();
    }
    root_ = Run();
    return root_.detach();
  }
  at::Tensor BackwardOf(const at::Tensor& start, bool keep) {
    if (options_.recompute) root_ = Run();
    // A frozen embedding alone has nobody to tell.
    if (root_.requires_grad()) root_.backward(start, /*retain_graph=*/keep);
    root_.reset();
    if (options_.first) return {};
    at::Tensor gradient = input_.source.grad();
    input_.source.mutable_grad().reset();
    return gradient;
  }

 private:
  at::Tensor Run() {
    if (!options_.first && at::GradMode::is_enabled()) input_.source.set_requires_grad(true);
    const at::Tensor output = network_.Forward(input_.source, input_.documents);
    return options_.last ? Model::Loss(output, input_.targets, input_.counted)
                         : output.to(at::kFloat);
  }

  const StageOptions& options_;
  const Model& network_;
  const at::Device device_;
  PassInput input_;  // an activation is the leaf that gets the input's gradient
  at::Tensor root_;  // what backward starts from: the output or the loss; none with recompute
};

// Zeros where and what the network needs.
at::Tensor BlankIds(const StageOptions& options) {
  return at::zeros({options.train.microbatch_size, options.model.context},
                   at::TensorOptions(at::kLong).device(TorchDevice(options.device)));
}
at::Tensor BlankBoundary(const StageOptions& options) {
  return at::zeros({options.train.microbatch_size, options.model.context, options.model.hidden},
                   at::TensorOptions(at::kFloat).device(TorchDevice(options.device)));
}
PassInput BlankInput(const StageOptions& options) {
  PassInput blank{.source = options.first ? BlankIds(options) : BlankBoundary(options)};
  if (options.last) blank.targets = BlankIds(options);
  if (options.last && options.masked_targets) {
    blank.counted =
        at::scalar_tensor(1, at::TensorOptions(at::kFloat).device(TorchDevice(options.device)));
  }
  if (options.masked_attention) blank.documents = BlankIds(options);
  return blank;
}

// Records an eager pass over tensors that stay, and queues it again for each microbatch.
class GraphPass final : public MicrobatchPass {
 public:
  // `start`: what backward starts with, the same memory for all passes. `passing`: where what is
  // needed during a graph alone is, of all passes, as one graph runs at a time.
  GraphPass(const StageOptions& options, const Model& network, TorchGraphRecorder& recorder,
            std::shared_ptr<const TorchGraphRecorder::Memory> passing, at::Tensor start)
      : options_(options),
        pass_(options, network),
        input_(BlankInput(options)),
        passing_(std::move(passing)),
        start_(std::move(start)) {
    // What forward leaves for backward is there until that, whatever other graphs run meanwhile.
    forward_ = recorder.Record(options.recompute ? *passing_ : recorder.NewMemory(),
                               [&] { output_ = pass_.ForwardOf(input_); });
    backward_ = recorder.Record(*passing_, [&] {
      source_gradient_ = pass_.BackwardOf(start_, /*keep=*/!options.recompute);
    });
    // Both are read before another graph runs.
    output_ = WithoutOwning(output_);
    if (!options.first) source_gradient_ = WithoutOwning(source_gradient_);
  }

  at::Tensor Forward(const PassInput& input) override {
    const at::NoGradGuard no_grad;
    input_.source.copy_(input.source);
    if (options_.last) input_.targets.copy_(input.targets);
    if (input_.counted.defined()) input_.counted.copy_(input.counted);
    if (input_.documents.defined()) input_.documents.copy_(input.documents);
    forward_->Replay();
    return output_.clone();
  }

  at::Tensor Backward(const at::Tensor& gradient) override {
    const at::NoGradGuard no_grad;
    if (!options_.last) start_.copy_(gradient);
    backward_->Replay();
    return options_.first ? at::Tensor() : source_gradient_.clone();
  }

 private:
  static at::Tensor WithoutOwning(const at::Tensor& tensor) {
    return at::for_blob(tensor.data_ptr(), tensor.sizes())
        .strides(tensor.strides())
        .options(tensor.options())
        .target_device(tensor.device())
        .make_tensor();
  }

  const StageOptions& options_;
  EagerPass pass_;
  const PassInput input_;
  const std::shared_ptr<const TorchGraphRecorder::Memory> passing_;
  at::Tensor start_, output_, source_gradient_;
  std::unique_ptr<TorchGraph> forward_, backward_;
};

}  // namespace

MicrobatchPasses::MicrobatchPasses(const StageOptions& options, const Model& network)
    : options_(options), network_(network) {
  if (!options.device.cuda_index || !options.graphs) return;
  for (const Parameter& parameter : network.parameters()) {
    parameter.value.mutable_grad() = at::zeros_like(parameter.value);
  }
  // Over nothing, so that libraries have what they need before anything is recorded.
  {
    EagerPass pass(options, network);
    start_ = options.last ? pass.StartAtLoss() : BlankBoundary(options);
    pass.Forward(BlankInput(options));
    pass.Backward(start_);
  }
  const at::Device device = TorchDevice(options.device);
  TrimMemory(device);
  recorder_ = MakeTorchGraphRecorder(device);
  ForgetGradients();
}

std::unique_ptr<MicrobatchPass> MicrobatchPasses::Take() {
  if (!idle_.empty()) {
    std::unique_ptr<MicrobatchPass> pass = std::move(idle_.back());
    idle_.pop_back();
    return pass;
  }
  if (!recorder_) return std::make_unique<EagerPass>(options_, network_);
  // While it records LibTorch does not give back what it keeps, should memory run out.
  TrimMemory(TorchDevice(options_.device));
  // Gone with the last pass, also where recording the only one failed.
  std::shared_ptr<const TorchGraphRecorder::Memory> passing = passing_.lock();
  if (!passing) {
    passing_ = passing = std::make_shared<TorchGraphRecorder::Memory>(recorder_->NewMemory());
  }
  return std::make_unique<GraphPass>(options_, network_, *recorder_, std::move(passing), start_);
}

void MicrobatchPasses::GiveBack(std::unique_ptr<MicrobatchPass> pass) {
  if (recorder_) idle_.push_back(std::move(pass));
}

at::Tensor MicrobatchPasses::Evaluate(const PassInput& input) {
  // Without memory of its own where there is a pass that nobody uses.
  if (!idle_.empty()) return idle_.back()->Forward(input);
  const at::NoGradGuard no_grad;
  return EagerPass(options_, network_).Forward(input);
}

void MicrobatchPasses::ForgetGradients() {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : network_.parameters()) {
    at::Tensor& gradient = parameter.value.mutable_grad();
    if (recorder_) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

}  // namespace longhaul::worker
