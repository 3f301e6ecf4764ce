// A pass that launches kernels one by one. Recorded passes record one (microbatch_pass.cc).
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/stage/model/loss.h"
#include "worker/stage/model/model.h"
#include "worker/stage/model/pair_loss.h"
#include "worker/stage/passes/microbatch_pass.h"
#include "worker/stage/passes/slice_past.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// The stage's blocks are one piece, or with Recompute::kBlocks a piece each. Backward computes a
// piece again from its input if its activations were not kept.
class EagerPass final : public MicrobatchPass {
 public:
  // `index`: the slice's number in the microbatch that `past` belongs to.
  EagerPass(const StageOptions& options, const Model& network,
            const std::shared_ptr<MicrobatchPast>& past, uint32_t index);

  at::Tensor Forward(const PassInput& input) override;
  at::Tensor HiddenOnly(const PassInput& input) override { return HiddenOf(CopyOf(input)); }
  at::Tensor Backward(const at::Tensor& gradient) override;
  bool TellWhatIsFinal(std::function<void(uint32_t)> final) override;

  // Returns the number with which backward of the last stage starts: the loss's weight in that of a
  // step.
  at::Tensor StartAtLoss() const;

  // --- The parts of forward and backward, with tensors of the model's device and type. The inputs
  // of all pieces but the first are copied into `tensors`, which keep their memory.
  void KeepInputsIn(const std::vector<at::Tensor>& tensors);
  size_t pieces() const { return inputs_.size(); }
  // Returns the hidden state after the blocks, fp32. With train.dpo, where another stage follows,
  // the hidden state without adapters comes behind it.
  at::Tensor HiddenOf(PassInput input);
  // Returns the loss over what HiddenOf returned.
  at::Tensor LossOf(const at::Tensor& hidden);
  bool keeps_logits() const {
    return pair_loss_ ? pair_loss_->keeps_logits() : loss_.keeps_logits();
  }
  // `keep`: what forward saved stays for another backward.
  at::Tensor BackwardOf(const at::Tensor& start, bool keep);

 private:
  // Copies the input to the stage's device.
  PassInput CopyOf(const PassInput& input) const;
  bool recomputes() const { return options_.recompute != Recompute::kNone; }
  int64_t RowsOfSlice() const;
  Model::Layout LayoutOfSlice();
  // Runs the blocks without adapters and keeps nothing for backward. Returns the hidden state; on
  // the last stage the loss takes it, and the result is undefined.
  at::Tensor RunReference(Model::Layout* layout);
  at::Tensor RunPiece(size_t piece, const at::Tensor& x, const Model::Layout& layout) const;
  void SayFinal(size_t block) const;
  // When backward has computed the gradient of a block's input, all later blocks' gradients are
  // final.
  void SayFinalBefore(size_t block, const at::Tensor& input) const;
  // Returns the tensor that collects the gradient of a piece's input. Token ids get none.
  at::Tensor LeafOf(size_t piece) const;
  void KeepInput(size_t piece, const at::Tensor& x);

  const StageOptions& options_;
  const Model& network_;
  const at::Device device_;
  const int64_t first_token_;  // in its microbatch
  const uint32_t index_;       // of the slice
  const std::shared_ptr<MicrobatchPast> microbatch_;
  SlicePast past_;
  PassInput input_;
  std::vector<at::Tensor> inputs_;  // of pieces
  bool inputs_stay_ = false;
  std::function<void(uint32_t)> final_;
  Loss loss_;                          // last stage
  std::optional<PairLoss> pair_loss_;  // last stage with train.dpo, in place of loss_
  at::Tensor leaf_, root_;             // of the piece that has its graph: its input and its output
};

}  // namespace longhaul::worker
