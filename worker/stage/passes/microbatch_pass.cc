#include "worker/stage/passes/microbatch_pass.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "run/boundary/boundary_shape.h"
#include "run/model/attention_chunks.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/model/loss.h"

namespace longhaul::worker {
namespace {

// Launches kernels one by one. The stage's blocks are one piece, or with Recompute::kBlocks a piece
// each. Backward computes a piece again from its input if its activations were not kept.
class EagerPass final : public MicrobatchPass {
 public:
  // `index`: the slice's number in the microbatch that `past` belongs to.
  EagerPass(const StageOptions& options, const Model& network,
            const std::shared_ptr<MicrobatchPast>& past, uint32_t index)
      : options_(options),
        network_(network),
        device_(TorchDevice(options.device)),
        first_token_(int64_t{index} * options.slice_tokens()),
        past_(past, index),
        inputs_(options.recompute == Recompute::kBlocks ? std::max<size_t>(network.block_count(), 1)
                                                        : 1),
        loss_(options, network) {}

  at::Tensor Forward(const PassInput& input) override {
    const auto copy = [&](const at::Tensor& tensor, at::ScalarType type) {
      return tensor.to(at::TensorOptions(type).device(device_), /*non_blocking=*/false,
                       /*copy=*/true);
    };
    PassInput there{.source = copy(input.source, options_.first ? at::kLong : at::kFloat)};
    if (options_.last) there.targets = copy(input.targets, at::kLong);
    if (input.counted.defined()) there.counted = copy(input.counted, at::kFloat);
    if (input.documents.defined()) there.documents = copy(input.documents, at::kLong);
    if (input.random.defined()) there.random = copy(input.random, at::kLong);
    there.most_documents = input.most_documents;
    const at::Tensor hidden = HiddenOf(std::move(there));
    return options_.last ? loss_.Forward(hidden) : hidden;
  }

  at::Tensor Backward(const at::Tensor& gradient) override {
    // A copy, because autograd may write into it, and because a group's boundary is on rank 0's
    // device.
    const at::Tensor start = options_.last
                                 ? StartAtLoss()
                                 : gradient.to(at::TensorOptions(at::kFloat).device(device_),
                                               /*non_blocking=*/false, /*copy=*/true);
    return BackwardOf(start, /*keep=*/false);
  }

  bool TellWhatIsFinal(std::function<void(uint32_t)> final) override {
    if (network_.group() != nullptr) return false;
    final_ = std::move(final);
    return true;
  }

  // Backward of the last stage starts with the loss's weight in that of a step.
  at::Tensor StartAtLoss() const {
    return at::scalar_tensor(ShareInMicrobatch(options_) / options_.train.microbatches,
                             at::TensorOptions(at::kFloat).device(device_));
  }

  // --- The parts of forward and backward, with tensors of the model's device and type. The inputs
  // of all pieces but the first are copied into `tensors`, which keep their memory.
  void KeepInputsIn(const std::vector<at::Tensor>& tensors) {
    std::copy(tensors.begin(), tensors.end(), inputs_.begin() + 1);
    inputs_stay_ = true;
  }
  size_t pieces() const { return inputs_.size(); }
  // The hidden state after the blocks, fp32.
  at::Tensor HiddenOf(PassInput input) {
    input_ = std::move(input);
    loss_.SetTargets(input_.targets, input_.counted);
    inputs_[0] = input_.source;
    past_.Begin();
    const Dropout::Pass dropout(network_.dropout(), input_.random, RowsOfSlice());
    const bool trains = at::GradMode::is_enabled();
    const at::AutoGradMode with_graph(trains && !recomputes());
    const Model::Layout layout = LayoutOfSlice();
    if (trains && !recomputes()) leaf_ = LeafOf(0);
    at::Tensor x = leaf_.defined() ? leaf_ : inputs_[0];
    for (size_t piece = 0; piece < inputs_.size(); ++piece) {
      if (piece > 0 && trains) KeepInput(piece, x);
      x = RunPiece(piece, x, layout);
    }
    if (leaf_.defined()) root_ = x;
    return x.detach();
  }
  // The loss over what HiddenOf gave.
  Loss& loss() { return loss_; }
  // `keep`: what forward saved stays for another backward.
  at::Tensor BackwardOf(const at::Tensor& start, bool keep) {
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
        gradient = loss_.Backward(root_.detach(), start, keep);
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

 private:
  bool recomputes() const { return options_.recompute != Recompute::kNone; }
  int64_t RowsOfSlice() const {
    return int64_t{options_.train.microbatch_size} * options_.slice_tokens();
  }
  Model::Layout LayoutOfSlice() {
    Model::Layout layout = Model::LayoutOf(input_.documents, first_token_, options_.slice_tokens(),
                                           input_.most_documents);
    layout.past = &past_;
    return layout;
  }
  at::Tensor RunPiece(size_t piece, const at::Tensor& x, const Model::Layout& layout) const {
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
  void SayFinal(size_t block) const {
    if (final_ && block > 0) final_(static_cast<uint32_t>(block));
  }
  // When backward has computed the gradient of a block's input, all later blocks' gradients are
  // final.
  void SayFinalBefore(size_t block, const at::Tensor& input) const {
    if (!input.requires_grad()) return;
    input.register_hook([this, block](const at::Tensor&) { SayFinal(block); });
  }
  // The tensor that collects the gradient of a piece's input. Token ids get none.
  at::Tensor LeafOf(size_t piece) const {
    if (options_.first && piece == 0) return inputs_[0];
    return inputs_[piece].detach().set_requires_grad(true);
  }
  void KeepInput(size_t piece, const at::Tensor& x) {
    if (inputs_stay_) {
      inputs_[piece].copy_(x);
    } else {
      inputs_[piece] = x;
    }
  }

  const StageOptions& options_;
  const Model& network_;
  const at::Device device_;
  const int64_t first_token_;  // in its microbatch
  SlicePast past_;
  PassInput input_;
  std::vector<at::Tensor> inputs_;  // of pieces
  bool inputs_stay_ = false;
  std::function<void(uint32_t)> final_;
  Loss loss_;               // last stage
  at::Tensor leaf_, root_;  // of the piece that has its graph: its input and its output
};

int64_t MostDocumentsRecorded(const StageOptions& options) {
  return static_cast<int64_t>(
      model::MostDocumentsRecorded(options.train.microbatch_size, options.model.context));
}

// Zeros with the shape, type and device that the model needs.
at::Tensor BlankIds(const StageOptions& options, uint32_t tokens) {
  return at::zeros({options.train.microbatch_size, tokens},
                   at::TensorOptions(at::kLong).device(TorchDevice(options.device)));
}
at::Tensor BlankBoundary(const StageOptions& options) {
  const codec::Shape shape =
      SliceShape(options.model, options.train, options.group, options.slices);
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
    loss_ = Recording(recorder, pass_.loss().keeps_logits() ? own : passing, group_,
                      [&] { output_ = pass_.loss().Forward(hidden); });
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
    input_.source.copy_(input.source);
    if (options_.last) input_.targets.copy_(input.targets);
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
    if (loss_) loss_.Replay();
    return output_.clone();
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
  // Reuses the memory of an idle microbatch, if there is one.
  if (index == 0) {
    evaluated_ = {.past = nullptr, .recorded = CanReplay(input) ? FindIdle() : nullptr};
  }
  at::Tensor output;
  if (evaluated_.recorded) {
    output = evaluated_.recorded->slice(index)->Forward(input);
  } else {
    const at::NoGradGuard no_grad;
    if (index == 0) evaluated_.past = std::make_shared<MicrobatchPast>(options_.slices);
    output = EagerPass(options_, network_, evaluated_.past, index).Forward(input);
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
