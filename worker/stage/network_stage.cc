#include "worker/stage/network_stage.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/cuda/device.h"
#include "run/boundary/boundary_shape.h"
#include "run/model/family.h"
#include "worker/stage/device/host_copies.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/loss.h"
#include "worker/stage/model/model.h"
#include "worker/stage/optimizer/gradient_norm.h"
#include "worker/stage/optimizer/optimizer.h"
#include "worker/stage/passes/boundary_tensors.h"
#include "worker/stage/passes/microbatch_pass.h"
#include "worker/stage/passes/slice_turns.h"
#include "worker/stage/passes/stage_input.h"
#include "worker/stage/replicas/shared_memory.h"
#include "worker/stage/replicas/tied_parameter.h"
#include "worker/stage/snapshot/snapshot_arrays.h"
#include "worker/stage/snapshot/snapshot_shards.h"
#include "worker/stage/snapshot/state_digest.h"

namespace longhaul::worker {
namespace {

// Before anything of a stage is made or computed.
at::Device PreparedDevice(const StageOptions& options) {
  const at::Device device = TorchDevice(options.device);
  // What layers that were measured have left counts no more.
  TrimMemory(device);
  ForgetPeakMemory(device);
  // The setting is global to the process, which has one stage at a time, or several of one run.
  at::globalContext().setDeterministicAlgorithms(options.train.deterministic,
                                                 /*warn_only=*/false);
  // Nothing here reads what it has not written.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return device;
}

class NetworkStage final : public Stage {
 public:
  // `steps_it`: with an optimizer of its own.
  NetworkStage(const StageOptions& options, const RankGroup* group, bool steps_it)
      : options_(options),
        device_(PreparedDevice(options)),
        reader_(&options_, device_),
        network_(Model::Create(options, group)),
        optimizer_(Optimizer::Create(
            options.train, steps_it ? network_->parameters() : std::vector<Parameter>(), group)),
        passes_(options_, *network_),
        tied_(TiedMatrixOf(options_, network_->parameters())),
        turns_(options.slices) {}

  Status PreparePasses(uint32_t in_flight) override {
    return CallTorch("recording passes", options_.threads, [&] { passes_.Prepare(in_flight); });
  }
  StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) override {
    using Result = StatusOr<std::optional<BoundaryTensor>>;
    return CallTorch("forward", options_.threads, [&]() -> Result {
      LH_RETURN_IF_ERROR(turns_.CheckForward(slice));
      LH_ASSIGN_OR_RETURN(const PassInput read, reader_.Read(slice, input, /*training=*/true));
      Pending pending{.pass = passes_.Take(read, slice.index)};
      const at::Tensor output = pending.pass->Forward(read);
      if (options_.last) pending.loss = LossIn(output);
      pending_.emplace(slice, std::move(pending));
      turns_.TakeForward(slice);
      if (options_.last) return std::nullopt;
      return ToBoundary(output);
    });
  }
  StatusOr<double> Loss(Slice slice) const override {
    const auto it = pending_.find(slice);
    if (!options_.last || it == pending_.end()) {
      return absl::InvalidArgumentError(
          options_.last ? fmt::format("{} has not run forward", turns_.NameOf(slice))
                        : std::string("only the last stage has a loss"));
    }
    return it->second.loss;
  }
  StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& output_gradient) override {
    using Result = StatusOr<std::optional<BoundaryTensor>>;
    return CallTorch("backward", options_.threads, [&]() -> Result {
      LH_RETURN_IF_ERROR(turns_.CheckBackward(slice));
      at::Tensor gradient;
      if (!options_.last) {
        LH_ASSIGN_OR_RETURN(gradient, reader_.ReadBoundary("an output gradient", output_gradient,
                                                           Direction::kBackward));
      }
      const auto it = pending_.find(slice);
      Pending pending = std::move(it->second);
      pending_.erase(it);
      turns_.TakeBackward(slice);
      gradients_are_whole_ = false;
      if (final_) pending.pass->TellWhatIsFinal(std::exchange(final_, nullptr));
      const at::Tensor of_input = pending.pass->Backward(gradient);
      if (!options_.first) return ToBoundary(of_input);
      AwaitTorch(device_);
      return std::nullopt;
    });
  }
  StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                   double* loss) override {
    using Result = StatusOr<std::optional<BoundaryTensor>>;
    return CallTorch("evaluation", options_.threads, [&]() -> Result {
      LH_RETURN_IF_ERROR(turns_.CheckEvaluation(slice));
      LH_ASSIGN_OR_RETURN(const PassInput read, reader_.Read(slice, input, /*training=*/false));
      const at::Tensor output = passes_.Evaluate(read, slice.index);
      turns_.TakeEvaluation(slice);
      if (!options_.last) return ToBoundary(output);
      *loss = LossIn(output);
      return std::nullopt;
    });
  }
  PreferenceSums TakePreferences() override { return std::exchange(preferences_, {}); }
  // In a group, columns of other ranks are minus infinity.
  StatusOr<std::vector<float>> EvaluateLogits(Slice slice, const Input& input,
                                              std::span<const Place> places) override {
    return CallTorch("samples", options_.threads, [&]() -> StatusOr<std::vector<float>> {
      if (!options_.last) return absl::InvalidArgumentError("only the last stage has logits");
      LH_RETURN_IF_ERROR(turns_.CheckEvaluation(slice));
      // The head's loss is left out, so any targets will do.
      const std::vector<int32_t> targets(size_t{options_.train.microbatch_size} *
                                         options_.model.context);
      Input with_targets = input;
      with_targets.targets = targets;
      with_targets.counted = 1;
      LH_ASSIGN_OR_RETURN(PassInput read, reader_.Read(slice, with_targets, /*training=*/false));
      read.targets.reset();
      const at::Tensor hidden = passes_.EvaluateHidden(read, slice.index);
      turns_.TakeEvaluation(slice);
      return LogitsAt(hidden, places);
    });
  }
  StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const override {
    return CallTorch("gradient norm", options_.threads, [&]() -> StatusOr<SquaredNorm> {
      SumPartsOfGradients();
      return AddSquaredGradients(network_->parameters(), sum);
    });
  }
  Status OptimizerStep(Step step, double learning_rate, double gradient_scale) override {
    return CallTorch("optimizer step", options_.threads, [&]() -> Status {
      if (!std::isfinite(gradient_scale) || gradient_scale <= 0) {
        return FailedPrecondition(
            "the gradients of step {} are not finite (their scale is {}); lower "
            "train.optimizer.lr or lengthen train.schedule.warmup",
            step.value(), gradient_scale);
      }
      LH_RETURN_IF_ERROR(CheckStepEnds(step));
      SumPartsOfGradients();
      optimizer_->Step(step.value(), learning_rate, gradient_scale);
      EndStep(step);
      return absl::OkStatus();
    });
  }
  Status SkipStep(Step step) override {
    return CallTorch("skipping a step", options_.threads, [&]() -> Status {
      LH_RETURN_IF_ERROR(CheckStepEnds(step));
      ForgetStep();
      AwaitTorch(device_);
      steps_ = step.value();
      return absl::OkStatus();
    });
  }
  StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn memory) override {
    return CallTorch("reading parameters", options_.threads,
                     [&]() -> StatusOr<std::vector<SharedParameter>> {
                       SumPartsOfGradients();
                       return shared_.Read(network_->parameters(), memory);
                     });
  }
  bool shares_on_device() const override {
    return !device_.is_cpu() && network_->group() == nullptr;
  }
  // On a GPU gradients are copied when all is done.
  bool TellWhatIsFinal(std::function<void(uint32_t)> final) override {
    const auto adds_in_place = [](const Parameter& parameter) {
      const at::Tensor& gradient = parameter.value.grad();
      return parameter.balances || (gradient.defined() && gradient.is_contiguous());
    };
    if (!device_.is_cpu() || network_->group() != nullptr || tied_ ||
        !std::ranges::all_of(network_->parameters(), adds_in_place)) {
      return false;
    }
    final_ = std::move(final);
    return true;
  }
  Status EndSharedStep(Step step) override {
    return CallTorch("taking the parameters of a step", options_.threads, [&]() -> Status {
      LH_RETURN_IF_ERROR(CheckStepEnds(step));
      shared_.Write(network_->parameters());
      shared_.ForgetGradients();
      EndStep(step);
      return absl::OkStatus();
    });
  }
  Status TakeSharedValues() override {
    return CallTorch("taking the parameters of replicas", options_.threads, [&] {
      shared_.Write(network_->parameters());
      network_->RefreshCasts();
      AwaitTorch(device_);
    });
  }
  StatusOr<std::unique_ptr<Stage>> MakeTwin() const override {
    return CallTorch("making a stage's twin", options_.threads,
                     [&]() -> StatusOr<std::unique_ptr<Stage>> {
                       auto twin = std::make_unique<NetworkStage>(options_, network_->group(),
                                                                  /*steps_it=*/false);
                       twin->CopyParameters(*this);
                       twin->steps_ = steps_;
                       AwaitTorch(device_);
                       return twin;
                     });
  }
  Status TakeTurnFrom(Stage* twin) override {
    auto* const other = dynamic_cast<NetworkStage*>(twin);
    LH_CHECK(other != nullptr && other != this, "a stage takes its turn from its twin");
    return CallTorch("taking a turn", options_.threads, [&] {
      CopyParameters(*other);
      std::swap(optimizer_, other->optimizer_);
      optimizer_->MoveTo(Optimizer::SteppedOf(network_->parameters()));
      steps_ = other->steps_;
    });
  }
  StatusOr<StageSnapshot> Snapshot() const override {
    return CallTorch("snapshot", options_.threads, [&]() -> StatusOr<StageSnapshot> {
      StageSnapshot snapshot;
      snapshot.step = steps_;
      std::vector<at::Tensor> on_gpu;
      const auto array_of = [&](const std::string& name, const at::Tensor& value) {
        return device_.is_cpu() ? ToNamedArray(name, value) : ToCopy(name, value, &on_gpu);
      };
      for (const Parameter& parameter : network_->parameters()) {
        snapshot.parameters.push_back(array_of(parameter.name, parameter.value));
      }
      for (const Optimizer::Moment& moment : optimizer_->moments()) {
        snapshot.moments.push_back(array_of(moment.name, moment.value));
      }
      if (!on_gpu.empty()) LH_RETURN_IF_ERROR(CopyToHost(on_gpu, &snapshot));
      return snapshot;
    });
  }
  StatusOr<uint64_t> StateDigest() const override {
    return CallTorch("digest of the state", options_.threads, [&]() -> StatusOr<uint64_t> {
      std::vector<at::Tensor> tensors;
      for (const Parameter& parameter : network_->parameters()) {
        tensors.push_back(parameter.value);
      }
      for (const Optimizer::Moment& moment : optimizer_->moments()) {
        tensors.push_back(moment.value);
      }
      return DigestOfTensors(tensors);
    });
  }
  Status Restore(const StageSnapshot& snapshot) override {
    // A stage with its own optimizer needs whole arrays. With shares_step the stage restores only
    // the values that passes compute with; the replicas' optimizer restores the pieces.
    if (!options_.shares_step && ArrayPieces(snapshot.moments).HasPieces()) {
      LH_ASSIGN_OR_RETURN(const StageSnapshot whole, WithoutPieces(snapshot));
      return Restore(whole);
    }
    // Matches all arrays before it changes the first parameter, so that an error leaves the stage
    // as it was.
    const ArrayIndex parameters = Index(snapshot.parameters), moments = Index(snapshot.moments);
    std::vector<Restored> restored;
    for (const Parameter& own : network_->parameters()) {
      LH_ASSIGN_OR_RETURN(restored.emplace_back(), Match(parameters, own.name, own.value));
    }
    for (const Optimizer::Moment& own : optimizer_->moments()) {
      LH_RETURN_IF_ERROR(CheckKind(moments, own.name, options_.train.optimizer.kind));
      LH_ASSIGN_OR_RETURN(restored.emplace_back(), Match(moments, own.name, own.value));
    }
    LH_RETURN_IF_ERROR(CallTorch("restoring the stage", options_.threads, [&] {
      const at::NoGradGuard no_grad;
      for (const Restored& one : restored) {
        one.to.copy_(at::from_blob(const_cast<float*>(one.from->values.data()), one.to.sizes()));
      }
      network_->RefreshCasts();
      ForgetStep();
    }));
    steps_ = snapshot.step;
    return absl::OkStatus();
  }
  Status Load(const ReadParameter& read) override {
    return CallTorch("loading parameters", options_.threads, [&]() -> Status {
      LH_RETURN_IF_ERROR(network_->Load(read));
      AwaitTorch(device_);
      return absl::OkStatus();
    });
  }
  Status DropStep() override {
    return CallTorch("dropping a step", options_.threads, [&] {
      ForgetStep();
      AwaitTorch(device_);
    });
  }
  uint64_t steps() const override { return steps_; }
  TiedMatrix* tied_matrix() override { return tied_.get(); }
  std::vector<std::vector<int64_t>> TokensOfExperts() const override {
    return network_->TokensOfExperts();
  }
  uint64_t parameter_count() const override {
    uint64_t count = 0;
    for (const Parameter& parameter : network_->parameters()) {
      count += static_cast<uint64_t>(parameter.value.numel());
    }
    return count;
  }
  uint64_t peak_memory_bytes() const override {
    const auto bytes = CallTorch("counting memory", options_.threads,
                                 [&]() -> StatusOr<uint64_t> { return PeakMemoryBytes(device_); });
    return bytes.value_or(0);
  }
  uint64_t memory_bytes() const override {
    if (!device_.is_cpu()) {
      const auto bytes = CallTorch("counting memory", options_.threads,
                                   [&]() -> StatusOr<uint64_t> { return MemoryBytes(device_); });
      return bytes.value_or(0);
    }
    size_t bytes = network_->frozen_bytes();
    for (const Parameter& parameter : network_->parameters()) {
      bytes += parameter.value.nbytes();
      if (parameter.value.grad().defined()) bytes += parameter.value.grad().nbytes();
    }
    for (const Optimizer::Moment& moment : optimizer_->moments()) bytes += moment.value.nbytes();
    return bytes;
  }

 private:
  // The logits of this rank at some places of `hidden`, (rows, tokens, channels).
  StatusOr<std::vector<float>> LogitsAt(const at::Tensor& hidden,
                                        std::span<const Place> places) const {
    const size_t vocabulary = options_.vocabulary;
    std::vector<float> logits(places.size() * vocabulary, -std::numeric_limits<float>::infinity());
    if (places.empty()) return logits;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> rows;
    for (const Place& place : places) {
      if (place.row >= options_.train.microbatch_size || place.token >= hidden.size(1)) {
        return InvalidArgument("expected a place in {} rows of {} tokens, got token {} of row {}",
                               options_.train.microbatch_size, hidden.size(1), place.token,
                               place.row);
      }
      rows.push_back(hidden.select(0, place.row).narrow(0, place.token, 1));
    }
    const at::Tensor own = network_->Logits(at::stack(rows)).to(at::kFloat).cpu().contiguous();
    const auto first = static_cast<size_t>(network_->first_logit());
    const auto columns = static_cast<size_t>(own.size(-1));
    // Rows of the head that no token has, at its end, are left out.
    const size_t kept = first < vocabulary ? std::min(columns, vocabulary - first) : 0;
    for (size_t i = 0; i < places.size(); ++i) {
      std::copy_n(own.const_data_ptr<float>() + i * columns, kept,
                  logits.begin() + static_cast<ptrdiff_t>(i * vocabulary + first));
    }
    return logits;
  }
  // One slice between its Forward and its Backward.
  struct Pending {
    std::shared_ptr<MicrobatchPass> pass;
    double loss = 0;  // last stage
  };

  // What a pass of the last stage adds to the loss of its microbatch. `output`: what the pass
  // returned.
  double LossIn(const at::Tensor& output) {
    if (!options_.train.dpo) return ShareInMicrobatch(options_) * output.item<float>();
    const at::Tensor there = output.to(at::kCPU);
    const std::span numbers(there.const_data_ptr<double>(), 4);
    preferences_ += {.pairs = numbers[1], .preferred = numbers[2], .margins = numbers[3]};
    return numbers[0];
  }
  // OK: all of `step` but its update is done.
  Status CheckStepEnds(Step step) const {
    if (step.value() != steps_ + 1) {
      return FailedPrecondition("expected optimizer step {}, came {}", steps_ + 1, step.value());
    }
    if (!turns_.StepIsDone()) {
      return FailedPrecondition("optimizer step {} came before the last backward", step.value());
    }
    return absl::OkStatus();
  }
  // Ends a step whose update the parameters have already got.
  void EndStep(Step step) {
    passes_.ForgetGradients();
    network_->EndStep();
    network_->RefreshCasts();
    AwaitTorch(device_);
    steps_ = step.value();
    turns_.EndStep();
  }
  void ForgetStep() {
    pending_.clear();
    preferences_ = {};
    final_ = nullptr;
    shared_.ForgetGradients();
    passes_.ForgetGradients();
    network_->ForgetStep();
    turns_.EndStep();
  }
  // `other` was made by the same options.
  void CopyParameters(const NetworkStage& other) {
    const at::NoGradGuard no_grad;
    const std::vector<Parameter>&mine = network_->parameters(),
          &others = other.network_->parameters();
    for (size_t i = 0; i < mine.size(); ++i) mine[i].value.detach().copy_(others[i].value);
    network_->RefreshCasts();
  }
  // In a group, once a step.
  void SumPartsOfGradients() const {
    if (network_->group() == nullptr || gradients_are_whole_) return;
    worker::SumPartsOfGradients(network_->parameters(), *network_->group());
    gradients_are_whole_ = true;
  }
  // Fills in the values of `snapshot`: of its parameters, then of its moments.
  Status CopyToHost(const std::vector<at::Tensor>& on_gpu, StageSnapshot* snapshot) const {
    if (!host_copies_) {
      LH_ASSIGN_OR_RETURN(const cuda::Device gpu, cuda::Device::Open(*options_.device.cuda_index));
      LH_ASSIGN_OR_RETURN(host_copies_, HostCopies::Create(gpu));
    }
    std::vector<HostCopies::Copy> copies;
    for (std::vector<NamedArray>* arrays : {&snapshot->parameters, &snapshot->moments}) {
      for (NamedArray& array : *arrays) {
        const at::Tensor& tensor = on_gpu[copies.size()];
        copies.push_back({.data_dev = tensor.const_data_ptr(),
                          .elements = static_cast<size_t>(tensor.numel()),
                          .bf16 = tensor.scalar_type() == at::kBFloat16,
                          .values = &array.values});
      }
    }
    AwaitTorch(device_);  // other streams read what is queued on this one
    return host_copies_->Run(copies);
  }

  const StageOptions options_;
  const at::Device device_;
  const StageInputReader reader_;
  const std::unique_ptr<const Model> network_;
  std::unique_ptr<Optimizer> optimizer_;
  MicrobatchPasses passes_;
  const std::unique_ptr<TiedMatrix> tied_;           // or null
  SharedMemory shared_;                              // of SharedParameters
  mutable std::unique_ptr<HostCopies> host_copies_;  // of a GPU's stage, from its first snapshot on
  uint64_t steps_ = 0;                               // taken
  SliceTurns turns_;
  std::map<Slice, Pending> pending_;
  mutable bool gradients_are_whole_ = false;
  PreferenceSums preferences_;           // since TakePreferences
  std::function<void(uint32_t)> final_;  // of the next Backward; or null
};

}  // namespace

StatusOr<std::unique_ptr<Stage>> MakeNetworkStage(const StageOptions& options,
                                                  const RankGroup* group) {
  LH_RETURN_IF_ERROR(CheckStageOptions(options));
  return CallTorch("creating the stage", options.threads,
                   [&]() -> StatusOr<std::unique_ptr<Stage>> {
                     return std::make_unique<NetworkStage>(options, group, !options.shares_step);
                   });
}

}  // namespace longhaul::worker
