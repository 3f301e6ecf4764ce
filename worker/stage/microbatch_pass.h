// Forward and backward of one slice of a microbatch through a stage's network, and what is kept
// between the two. What differs between computing as one goes and by recorded graphs is behind
// this.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_MICROBATCH_PASS_H_
#define LONGHAUL_WORKER_STAGE_MICROBATCH_PASS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/stage/model.h"
#include "worker/stage/slice_past.h"
#include "worker/stage/stage.h"
#include "worker/stage/torch_graph.h"

namespace longhaul::worker {

// What a slice begins with; all are copied.
struct PassInput {
  at::Tensor source;   // ids (microbatch, tokens), integers, or the activation, on any device
  at::Tensor targets;  // last stage: as ids
  // Where the options have them: an fp32 scalar (Stage::Input::counted); as ids, but of all the
  // microbatch's tokens.
  at::Tensor counted, documents;
};

class MicrobatchPass {
 public:
  virtual ~MicrobatchPass() = default;
  // The output, fp32; on the last stage the loss, a scalar.
  virtual at::Tensor Forward(const PassInput& input) = 0;
  // `gradient`: of the output, undefined on the last stage. Adds to the parameters' gradients. The
  // input's gradient, fp32; on the first stage undefined.
  virtual at::Tensor Backward(const at::Tensor& gradient) = 0;
  // As Stage::TellWhatIsFinal, of its Backward.
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> final) {
    static_cast<void>(final);
    return false;
  }
};

// The recorded passes of a microbatch's slices.
class RecordedMicrobatch;

// The passes of one stage. Those that are recorded are used again for later microbatches.
class MicrobatchPasses {
 public:
  // Both outlive it. On a GPU with `options.graphs`, where the network can be recorded, all
  // parameters have gradients from now on (zero in the beginning), whose memory stays where it is:
  // it is what graphs add to. A microbatch's passes are then recorded when more microbatches are
  // under way than ever before.
  MicrobatchPasses(const StageOptions& options, const Model& network);
  MicrobatchPasses(const MicrobatchPasses&) = delete;
  MicrobatchPasses& operator=(const MicrobatchPasses&) = delete;

  // Of slice `index` of a microbatch, whose slices are taken one after the other. It is held until
  // its Backward, or until that does not come any more; a recorded pass keeps its memory for as
  // long as the stage is there.
  std::shared_ptr<MicrobatchPass> Take(uint32_t index = 0);
  // So many microbatches can be under way without recording any. While none is.
  void Prepare(size_t microbatches);
  // As a pass's Forward, of slice `index`; no Backward follows.
  at::Tensor Evaluate(const PassInput& input, uint32_t index = 0);
  // The parameters' gradients become nothing: after the optimizer has used them.
  void ForgetGradients();

 private:
  // Of the microbatch whose slices are being taken, or evaluated.
  struct Current {
    std::shared_ptr<MicrobatchPast> past;          // where it is computed as it goes
    std::shared_ptr<RecordedMicrobatch> recorded;  // where not
  };

  // All over nothing once, so that libraries have what they need before anything is recorded.
  void WarmUp();
  std::shared_ptr<RecordedMicrobatch> Record();
  // Null: all are in use.
  std::shared_ptr<RecordedMicrobatch> FindIdle() const;

  const StageOptions& options_;
  const Model& network_;
  std::unique_ptr<TorchGraphRecorder> recorder_;  // none: computes as it goes
  // Shared by all passes and held by them alone: a memory whose last graph is gone takes no other.
  std::weak_ptr<const TorchGraphRecorder::Memory> passing_;
  at::Tensor start_;
  // What a recorded microbatch keeps of its slices has these shapes.
  std::shared_ptr<const MicrobatchPast> past_;
  // In use where others than this hold them.
  std::vector<std::shared_ptr<RecordedMicrobatch>> recorded_;
  Current taken_, evaluated_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_MICROBATCH_PASS_H_
