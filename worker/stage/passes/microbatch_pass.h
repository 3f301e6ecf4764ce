// Forward and backward of one sequence chunk ("slice") of a microbatch through a stage's model, and
// the activations that are kept between the two. Hides whether kernels are launched one by one or
// as CUDA graphs ("recorded passes").
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

// Inputs of one slice's forward. All are copied.
struct PassInput {
  at::Tensor source;   // ids (microbatch, tokens), integers; or the activation; any device
  at::Tensor targets;  // last stage: shaped as ids
  // Set if the options have them. `counted`: an fp32 scalar (Stage::Input::counted). `documents`:
  // as ids, but for all tokens of the microbatch.
  at::Tensor counted, documents;
};

class MicrobatchPass {
 public:
  virtual ~MicrobatchPass() = default;
  // Returns the output, fp32; on the last stage the loss, a scalar.
  virtual at::Tensor Forward(const PassInput& input) = 0;
  // Adds to the parameters' gradients and returns the input's gradient, fp32 (undefined on the
  // first stage). `gradient`: the output's gradient; undefined on the last stage.
  virtual at::Tensor Backward(const at::Tensor& gradient) = 0;
  // As Stage::TellWhatIsFinal, for this pass's Backward.
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> final) {
    static_cast<void>(final);
    return false;
  }
};

// The CUDA graphs of one microbatch's slices.
class RecordedMicrobatch;

// All passes of one stage. CUDA graphs are reused for later microbatches.
class MicrobatchPasses {
 public:
  // Both arguments outlive this object. On a GPU with `options.graphs`, if the model can be
  // recorded, every parameter has a gradient from now on, zero at first, whose memory never moves,
  // because graphs add to it. A microbatch's graphs are recorded when more microbatches are in
  // flight than ever before.
  MicrobatchPasses(const StageOptions& options, const Model& network);
  MicrobatchPasses(const MicrobatchPasses&) = delete;
  MicrobatchPasses& operator=(const MicrobatchPasses&) = delete;

  // Returns the pass for slice `index`; the slices of a microbatch are taken in order. Hold the
  // pass until its Backward, or until it is clear that none follows. The memory of a recorded pass
  // lives as long as the stage.
  std::shared_ptr<MicrobatchPass> Take(uint32_t index = 0);
  // Makes `microbatches` graphs now, so that none is recorded during a step. Call it while no
  // microbatch is in flight.
  void Prepare(size_t microbatches);
  // Runs the forward of slice `index` without a later Backward.
  at::Tensor Evaluate(const PassInput& input, uint32_t index = 0);
  // Clears the parameters' gradients, after the optimizer has used them.
  void ForgetGradients();

 private:
  // The microbatch whose slices are being taken or evaluated.
  struct Current {
    std::shared_ptr<MicrobatchPast> past;          // if kernels are launched one by one
    std::shared_ptr<RecordedMicrobatch> recorded;  // if passes are recorded
  };

  // Runs all kernels once on zeros: libraries allocate on their first call, which a recording does
  // not allow.
  void WarmUp();
  std::shared_ptr<RecordedMicrobatch> Record();
  // Returns a recorded microbatch that is not in use; null if all are in use.
  std::shared_ptr<RecordedMicrobatch> FindIdle() const;

  const StageOptions& options_;
  const Model& network_;
  std::unique_ptr<TorchGraphRecorder> recorder_;  // null: kernels are launched one by one
  // Graphs share this memory pool and keep it alive: a pool whose last graph is gone accepts no
  // other.
  std::weak_ptr<const TorchGraphRecorder::Memory> passing_;
  at::Tensor start_;
  // The shapes of the tensors that a recorded microbatch keeps of its slices.
  std::shared_ptr<const MicrobatchPast> past_;
  // A microbatch is in use if it has another owner.
  std::vector<std::shared_ptr<RecordedMicrobatch>> recorded_;
  Current taken_, evaluated_;
};

}  // namespace longhaul::worker
