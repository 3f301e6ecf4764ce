#include "worker/stage/passes/microbatch_pass.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "run/boundary/boundary_shape.h"
#include "run/model/attention_chunks.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/passes/eager_pass.h"

namespace longhaul::worker {
namespace {

int64_t MostDocumentsRecorded(const StageOptions& options) {
  return static_cast<int64_t>(
      model::MostDocumentsRecorded(options.train.microbatch_size, options.model.context));
}

// Zeros with the shape, type and device that the model needs.
at::Tensor BlankIds(const StageOptions& options, uint32_t tokens) {
  return at::zeros({options.train.microbatch_size, tokens},
                   at::TensorOptions(at::kLong).device(TorchDevice(options.device)));
}
// Without the samples that are computed without adapters (train.dpo).
at::Tensor BlankBoundary(const StageOptions& options) {
  const codec::Shape shape =
      SliceShape(options.model, options.train, options.group, options.slices, Direction::kBackward);
  return at::zeros({shape.samples, shape.tokens, shape.channels},
                   at::TensorOptions(at::kFloat).device(TorchDevice(options.device)));
}
std::vector<at::Tensor> BlankInputs(const StageOptions& options, size_t count) {
  std::vector<at::Tensor> blanks(count);
  for (at::Tensor& blank : blanks) blank = BlankBoundary(options);
  return blanks;
}
PassInput BlankInput(const StageOptions& options) {
  const uint32_t tokens = options.slice_tokens();
  PassInput blank{.source = options.first ? BlankIds(options, tokens) : BlankBoundary(options)};
  if (options.train.dpo && !options.first) blank.reference = BlankBoundary(options);
  if (options.last) blank.targets = BlankIds(options, tokens);
  if (options.last && options.masked_targets) {
    blank.counted =
        at::scalar_tensor(1, at::TensorOptions(at::kFloat).device(TorchDevice(options.device)));
  }
  if (options.masked_attention) {
    blank.documents = BlankIds(options, options.model.context);
    blank.most_documents = MostDocumentsRecorded(options);
  }
  if (options.model.lora && options.model.lora->dropout > 0) {
    blank.random =
        at::scalar_tensor(0, at::TensorOptions(at::kLong).device(TorchDevice(options.device)));
  }
  return blank;
}

// A recorded part of a pass. Bytes that a rank's collectives sent during recording are counted at
// each replay instead.
class Recording {
 public:
  Recording() = default;
  Recording(TorchGraphRecorder& recorder, const TorchGraphRecorder::Memory& memory,
            const RankGroup* group, const std::function<void()>& work)
      : use_(group == nullptr ? nullptr : group->communicators().use) {
    const RankUse before = use_ ? *use_ : RankUse();
    graph_ = recorder.Record(memory, work);
    if (!use_) return;
    each_ = *use_ - before;
    *use_ = before;
  }
  explicit operator bool() const { return graph_ != nullptr; }
  void Replay() {
    graph_->Replay();
    if (use_) *use_ += each_;
  }

 private:
  std::shared_ptr<RankUse> use_;
  RankUse each_;
  std::unique_ptr<TorchGraph> graph_;
};

// Records an eager pass over tensors that keep their memory, and replays it for each microbatch.
class GraphPass final : public MicrobatchPass {
 public:
  // `index`: the slice's number in the microbatch that `past` belongs to; `past` keeps its memory.
  // `start`: the gradient of the loss, in the same memory for all passes.
  GraphPass(const StageOptions& options, const Model& network,
            const std::shared_ptr<MicrobatchPast>& past, uint32_t index, at::Tensor start)
      : options_(options),
        group_(network.group()),
        pass_(options, network, past, index),
        input_(BlankInput(options)),
        start_(std::move(start)) {
    if (pass_.pieces() > 1) pass_.KeepInputsIn(BlankInputs(options, pass_.pieces() - 1));
  }

  // Records forward; call it for all slices before any backward. `own`: memory of what forward
  // saves for backward, which no other graph may use. `passing`: memory that is needed only while a
  // graph runs, shared by all passes, as graphs run one at a time.
  void RecordForward(TorchGraphRecorder& recorder, const TorchGraphRecorder::Memory& own,
                     const TorchGraphRecorder::Memory& passing) {
    forward_ = Recording(recorder, own, group_, [&] { output_ = pass_.HiddenOf(input_); });
    if (!options_.last) return;
    const at::Tensor hidden = output_;
    loss_ = Recording(recorder, pass_.keeps_logits() ? own : passing, group_,
                      [&] { output_ = pass_.LossOf(hidden); });
    hidden_ = WithoutOwning(hidden);  // read right after forward_, before its memory is used again
  }
  // Records backward; call it for the last slice first.
  void RecordBackward(TorchGraphRecorder& recorder, const TorchGraphRecorder::Memory& passing) {
    backward_ = Recording(recorder, passing, group_,
                          [&] { source_gradient_ = pass_.BackwardOf(start_, /*keep=*/true); });
    // These two are read before another graph runs, so they need not own memory of the shared pool.
    output_ = WithoutOwning(output_);
    if (!options_.first) source_gradient_ = WithoutOwning(source_gradient_);
  }

  at::Tensor Forward(const PassInput& input) override {
    const at::NoGradGuard no_grad;
    ReplayForward(input);
    if (loss_) loss_.Replay();
    return output_.clone();
  }

  at::Tensor HiddenOnly(const PassInput& input) override {
    const at::NoGradGuard no_grad;
    ReplayForward(input);
    return (options_.last ? hidden_ : output_).clone();
  }

  // Without gradients.
  void ReplayForward(const PassInput& input) {
    input_.source.copy_(input.source);
    if (input_.reference.defined()) input_.reference.copy_(input.reference);
    if (input.targets.defined()) input_.targets.copy_(input.targets);
    if (input_.counted.defined()) input_.counted.copy_(input.counted);
    if (input_.documents.defined()) input_.documents.copy_(input.documents);
    // A validation replays the same graph.
    if (input_.random.defined()) {
      if (input.random.defined()) {
        input_.random.copy_(input.random);
      } else {
        input_.random.fill_(Dropout::kNothing);
      }
    }
    forward_.Replay();
  }

  at::Tensor Backward(const at::Tensor& gradient) override {
    const at::NoGradGuard no_grad;
    if (!options_.last) start_.copy_(gradient);
    backward_.Replay();
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
  const RankGroup* const group_;
  EagerPass pass_;
  const PassInput input_;
  at::Tensor start_, output_, source_gradient_;
  at::Tensor hidden_;  // last stage: the hidden state before the head
  Recording forward_, loss_, backward_;
};

}  // namespace

class RecordedMicrobatch {
 public:
  // Its keys and values have the shapes of `like`.
  RecordedMicrobatch(const StageOptions& options, const Model& network, const MicrobatchPast& like,
                     TorchGraphRecorder& recorder,
                     std::shared_ptr<const TorchGraphRecorder::Memory> passing,
                     const at::Tensor& start)
      : passing_(std::move(passing)) {
    const auto past = MicrobatchPast::ThatStays(like);
    // A recomputing pass saves only its inputs, so it needs no memory of its own.
    const TorchGraphRecorder::Memory own =
        options.recompute == Recompute::kNone ? recorder.NewMemory() : *passing_;
    for (uint32_t index = 0; index < options.slices; ++index) {
      slices_.push_back(std::make_unique<GraphPass>(options, network, past, index, start));
      slices_.back()->RecordForward(recorder, own, *passing_);
    }
    for (auto slice = slices_.rbegin(); slice != slices_.rend(); ++slice) {
      (*slice)->RecordBackward(recorder, *passing_);
    }
  }
  MicrobatchPass* slice(uint32_t index) { return slices_[index].get(); }

 private:
  const std::shared_ptr<const TorchGraphRecorder::Memory> passing_;
  std::vector<std::unique_ptr<GraphPass>> slices_;
};

MicrobatchPasses::MicrobatchPasses(const StageOptions& options, const Model& network)
    : options_(options), network_(network) {
  if (!options.device.cuda_index || !options.graphs || !network.can_be_recorded()) return;
  for (const Parameter& parameter : network_.parameters()) {
    parameter.value.mutable_grad() = at::zeros_like(parameter.value);
  }
  WarmUp();
  const at::Device device = TorchDevice(options.device);
  TrimMemory(device);
  recorder_ = MakeTorchGraphRecorder(device);
  ForgetGradients();
}

void MicrobatchPasses::WarmUp() {
  const auto past = std::make_shared<MicrobatchPast>(options_.slices);
  std::vector<std::unique_ptr<EagerPass>> passes;
  for (uint32_t index = 0; index < options_.slices; ++index) {
    passes.push_back(std::make_unique<EagerPass>(options_, network_, past, index));
    passes.back()->Forward(BlankInput(options_));
  }
  past_ = MicrobatchPast::ThatStays(*past);
  start_ = options_.last ? passes[0]->StartAtLoss() : BlankBoundary(options_);
  for (auto pass = passes.rbegin(); pass != passes.rend(); ++pass) (*pass)->Backward(start_);
}

std::shared_ptr<RecordedMicrobatch> MicrobatchPasses::Record() {
  // LibTorch cannot free its cache while it records, should memory run out.
  TrimMemory(TorchDevice(options_.device));
  // Null once the last pass is gone, or after recording the only one failed: that pool accepts no
  // graph.
  std::shared_ptr<const TorchGraphRecorder::Memory> passing = passing_.lock();
  if (!passing) {
    passing_ = passing = std::make_shared<TorchGraphRecorder::Memory>(recorder_->NewMemory());
  }
  // Recording on one rank while another computes with NCCL corrupts memory, so all ranks meet
  // before and after.
  const RankGroup* const group = network_.group();
  if (group != nullptr) group->Meet();
  auto recorded = std::make_shared<RecordedMicrobatch>(options_, network_, *past_, *recorder_,
                                                       std::move(passing), start_);
  if (group != nullptr) group->Meet();
  recorded_.push_back(recorded);
  return recorded;
}

std::shared_ptr<RecordedMicrobatch> MicrobatchPasses::FindIdle() const {
  const auto idle = std::ranges::find_if(
      recorded_, [](const auto& recorded) { return recorded.use_count() == 1; });
  return idle == recorded_.end() ? nullptr : *idle;
}

bool MicrobatchPasses::CanReplay(const PassInput& input) const {
  return recorder_ && input.most_documents <= MostDocumentsRecorded(options_);
}

std::shared_ptr<MicrobatchPass> MicrobatchPasses::Take(const PassInput& input, uint32_t index) {
  if (index == 0) {
    taken_ = {};
    if (CanReplay(input)) {
      taken_.recorded = FindIdle();
      if (!taken_.recorded) taken_.recorded = Record();
    } else {
      taken_.past = std::make_shared<MicrobatchPast>(options_.slices);
    }
  }
  std::shared_ptr<MicrobatchPass> pass;
  if (taken_.recorded) {
    pass = {taken_.recorded, taken_.recorded->slice(index)};
  } else {
    pass = std::make_shared<EagerPass>(options_, network_, taken_.past, index);
  }
  if (index + 1 == options_.slices) taken_ = {};
  return pass;
}

void MicrobatchPasses::Prepare(size_t microbatches) {
  while (recorder_ && recorded_.size() < microbatches) Record();
}

at::Tensor MicrobatchPasses::Evaluate(const PassInput& input, uint32_t index) {
  return RunEvaluation(input, index, &MicrobatchPass::Forward);
}

at::Tensor MicrobatchPasses::EvaluateHidden(const PassInput& input, uint32_t index) {
  return RunEvaluation(input, index, &MicrobatchPass::HiddenOnly);
}

at::Tensor MicrobatchPasses::RunEvaluation(const PassInput& input, uint32_t index,
                                           at::Tensor (MicrobatchPass::*run)(const PassInput&)) {
  // Reuses the memory of an idle microbatch, if there is one.
  if (index == 0) {
    evaluated_ = {.past = nullptr, .recorded = CanReplay(input) ? FindIdle() : nullptr};
  }
  at::Tensor output;
  if (evaluated_.recorded) {
    output = (evaluated_.recorded->slice(index)->*run)(input);
  } else {
    const at::NoGradGuard no_grad;
    if (index == 0) evaluated_.past = std::make_shared<MicrobatchPast>(options_.slices);
    EagerPass pass(options_, network_, evaluated_.past, index);
    output = (pass.*run)(input);
  }
  if (index + 1 == options_.slices) evaluated_ = {};
  return output;
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
