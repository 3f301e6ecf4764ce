// The state that the sequence chunks ("slices") of one microbatch share. In forward, later slices
// attend to the keys and values of earlier slices. In backward, they give gradients to these keys
// and values. The state is empty if a microbatch has one slice.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/stage/model/model.h"
#include "worker/stage/model/pair_loss.h"

namespace longhaul::worker {

// The keys and values of one microbatch, as autograd leaves: detached from the autograd graphs that
// computed them. Backwards of later slices accumulate gradients in these leaves. The state lives
// from the first slice's forward until its backward, which comes last.
struct MicrobatchPast {
  explicit MicrobatchPast(uint32_t count) : slices(count) {}
  // Makes the state for recorded passes. Its tensors and their gradients keep their memory, and
  // each forward fills them again. `like`: the state of a microbatch after the forwards of all its
  // slices.
  static std::shared_ptr<MicrobatchPast> ThatStays(const MicrobatchPast& like);

  const uint32_t slices;
  // The keys and values of the passes without adapters, by block and slice; empty without
  // train.dpo. The last slice's forward drops them, unless `stays` is set.
  std::vector<std::vector<KeysAndValues>> reference;
  const std::shared_ptr<PairSums> pairs = std::make_shared<PairSums>();  // with train.dpo
  bool stays = false;                                                    // made by ThatStays
  std::vector<std::vector<KeysAndValues>> leaves;                        // by block, by slice
};

// The keys and values of a microbatch as one of its slices uses them.
class SlicePast final : public Past {
 public:
  // For the only slice of a microbatch.
  SlicePast() : SlicePast(std::make_shared<MicrobatchPast>(1), 0) {}
  SlicePast(std::shared_ptr<MicrobatchPast> microbatch, uint32_t index)
      : microbatch_(std::move(microbatch)), index_(index) {}

  // Call Begin before the blocks run in forward. Call BeginAgain before backward. If blocks run
  // again in backward to recompute activations, the keys and values of the first run are kept.
  void Begin() { again_ = false; }
  void BeginAgain() { again_ = true; }

  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;

  // Appends to `roots` the tensors from which backward must start besides the output of the blocks:
  // the keys and values of this slice, as computed in the autograd graph. Appends to `gradients`
  // the gradients that later slices gave them. Takes only blocks that have run with a graph since
  // the last call. Then drops the leaves of this slice for these blocks, unless `stays` is set.
  void TakeRoots(std::vector<at::Tensor>* roots, std::vector<at::Tensor>* gradients);

 private:
  bool is_last() const { return index_ + 1 == microbatch_->slices; }
  void Keep(size_t block, const KeysAndValues& new_ones);

  std::shared_ptr<MicrobatchPast> microbatch_;
  uint32_t index_;
  bool again_ = false;
  std::vector<std::pair<size_t, KeysAndValues>> made_;  // keys and values with a graph, by block
};

// The keys and values of a microbatch's passes without adapters, as one of its slices uses them.
class ReferencePast final : public Past {
 public:
  // `microbatch` must outlive this object.
  ReferencePast(MicrobatchPast* microbatch, uint32_t index)
      : microbatch_(microbatch), index_(index) {}
  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;

 private:
  MicrobatchPast* const microbatch_;
  const uint32_t index_;
};

}  // namespace longhaul::worker
