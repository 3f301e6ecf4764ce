// Forward and backward of one sequence chunk ("slice") of a microbatch through a stage's model. A
// pass keeps the activations from forward to backward. Its interface is the same whether kernels
// are launched one by one or as CUDA graphs ("recorded passes").
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/stage/device/torch_graph.h"
#include "worker/stage/model/model.h"
#include "worker/stage/passes/slice_past.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// The inputs of a slice's forward. Forward copies the tensors, so their memory may be freed
// afterwards.
struct PassInput {
  at::Tensor source;  // ids (rows, tokens), integers; or the activation; on any device
  // With train.dpo, on all stages but the first: the activation without adapters, shaped as
  // `source`. The first stage has the same ids for both.
  at::Tensor reference;
  at::Tensor targets;  // on the last stage; shaped as ids
  // Undefined unless the stage's options need these two. `counted`: an fp32 scalar
  // (Stage::Input::counted). `documents`: integers for all tokens of the microbatch, (rows,
  // context).
  at::Tensor counted, documents;
  int64_t most_documents = 0;  // with `documents`: no fewer than all rows have together
  // The random number of the pass, an int64 scalar (Dropout::RandomOf), in training with dropout.
  // Undefined: nothing is dropped.
  at::Tensor random;
};

class MicrobatchPass {
 public:
  virtual ~MicrobatchPass() = default;
  // Returns the output, (rows, tokens, channels) fp32; with train.dpo the output without adapters
  // follows, in as many further rows. On the last stage the output is the loss of the slice, an
  // fp32 scalar, or with train.dpo what PairLoss::Forward returns.
  virtual at::Tensor Forward(const PassInput& input) = 0;
  // Adds to the gradients of the parameters, and returns the gradient of the input, fp32; undefined
  // on the first stage. `gradient`: the gradient of the output; undefined on the last stage.
  virtual at::Tensor Backward(const at::Tensor& gradient) = 0;
  // Runs forward up to the head, without gradients. Returns the hidden state, fp32, shaped as the
  // output of another stage. No Backward may follow.
  virtual at::Tensor HiddenOnly(const PassInput& input) = 0;
  // As Stage::TellWhatIsFinal, for the Backward of this pass.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep it
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> /*final*/) { return false; }
};

// The CUDA graphs for the slices of one microbatch.
class RecordedMicrobatch;

// Makes the passes of one stage. The CUDA graphs of a microbatch are used again for later ones.
class MicrobatchPasses {
 public:
  // Both arguments must outlive this object. Passes are recorded on a GPU if `options.graphs` is
  // set and the model can be recorded. Then each parameter has a gradient from now on, zero at
  // first. Its memory never moves, because graphs add to it. New graphs are recorded when more
  // microbatches are in flight than ever before.
  MicrobatchPasses(const StageOptions& options, const Model& network);
  MicrobatchPasses(const MicrobatchPasses&) = delete;
  MicrobatchPasses& operator=(const MicrobatchPasses&) = delete;

  // Returns the pass for slice `index`. Index 0 begins a microbatch; take its slices in order. Hold
  // the pass until its Backward, or until you know that none follows. The memory of a recorded pass
  // lives as long as this object. `input`: what the pass's Forward will get; a microbatch of more
  // documents than recorded passes compute for gets a pass that launches kernels one by one.
  std::shared_ptr<MicrobatchPass> Take(const PassInput& input, uint32_t index = 0);
  // Records the graphs for `microbatches` microbatches now, so that none is recorded during a step.
  // Call it while no microbatch is in flight.
  void Prepare(size_t microbatches);
  // Runs the forward of slice `index` for a validation: no Backward follows. Returns what
  // MicrobatchPass::Forward returns. The slices of a microbatch must come in order.
  at::Tensor Evaluate(const PassInput& input, uint32_t index = 0);
  // The same for MicrobatchPass::HiddenOnly. A microbatch must not mix the two.
  at::Tensor EvaluateHidden(const PassInput& input, uint32_t index = 0);
  // Clears the gradients of the parameters. Call it after the optimizer has used them.
  void ForgetGradients();

 private:
  // A microbatch of which some slices have been taken or evaluated, but not all. One member is set.
  struct Current {
    std::shared_ptr<MicrobatchPast> past;          // when kernels are launched one by one
    std::shared_ptr<RecordedMicrobatch> recorded;  // when passes are recorded
  };

  // Runs all kernels once on zeros. Libraries allocate memory at their first call, and a recording
  // would not allow that.
  void WarmUp();
  bool CanReplay(const PassInput& input) const;
  at::Tensor RunEvaluation(const PassInput& input, uint32_t index,
                           at::Tensor (MicrobatchPass::*run)(const PassInput&));
  std::shared_ptr<RecordedMicrobatch> Record();
  // Returns a recorded microbatch that is not in use; null if all are in use.
  std::shared_ptr<RecordedMicrobatch> FindIdle() const;

  const StageOptions& options_;
  const Model& network_;
  std::unique_ptr<TorchGraphRecorder> recorder_;  // null: kernels are launched one by one
  // A memory pool that all graphs share and keep alive. Without graphs it is gone, and a new one is
  // made.
  std::weak_ptr<const TorchGraphRecorder::Memory> passing_;
  at::Tensor start_;  // input of recorded backwards: the gradient of the output or of the loss
  // A pattern for the tensors that a recorded microbatch keeps for its slices.
  std::shared_ptr<const MicrobatchPast> past_;
  // A recorded microbatch is in use if something else owns it too.
  std::vector<std::shared_ptr<RecordedMicrobatch>> recorded_;
  Current taken_, evaluated_;
};

}  // namespace longhaul::worker
