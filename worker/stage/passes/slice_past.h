// The state that the sequence chunks ("slices") of one microbatch share: keys and values of earlier
// slices, to which later slices attend, and in backward the gradients of these keys and values.
// Empty if a microbatch has one slice.
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

namespace longhaul::worker {

// One microbatch's keys and values, detached from the autograd graphs that made them. Lives from
// the first slice's forward to the first slice's backward. Backwards of later slices accumulate
// gradients here.
struct MicrobatchPast {
  explicit MicrobatchPast(uint32_t count) : slices(count) {}
  // Makes the state for recorded passes: tensors and gradients keep their memory, and each forward
  // fills them again. `like`: a microbatch whose slices have all gone forward.
  static std::shared_ptr<MicrobatchPast> ThatStays(const MicrobatchPast& like);

  const uint32_t slices;
  bool stays = false;
  std::vector<std::vector<KeysAndValues>> leaves;  // by block, by slice
};

// One slice's view of its microbatch's keys and values.
class SlicePast final : public Past {
 public:
  // The only slice of a microbatch.
  SlicePast() : SlicePast(std::make_shared<MicrobatchPast>(1), 0) {}
  SlicePast(std::shared_ptr<MicrobatchPast> microbatch, uint32_t index)
      : microbatch_(std::move(microbatch)), index_(index) {}

  // Begin: blocks run from now on. BeginAgain: blocks run a second time, for a recomputing
  // backward; the keys and values of the first run stay.
  void Begin() { again_ = false; }
  void BeginAgain() { again_ = true; }

  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;

  // Adds the tensors that backward starts from, besides the blocks' output: this slice's keys and
  // values in the graph, and the gradients that later slices gave them. Leaves out blocks that ran
  // without a graph or before the last call. Drops this slice's kept keys and values of the blocks
  // that ran, unless `stays`.
  void TakeRoots(std::vector<at::Tensor>* roots, std::vector<at::Tensor>* gradients);

 private:
  bool is_last() const { return index_ + 1 == microbatch_->slices; }
  void Keep(size_t block, const KeysAndValues& new_ones);

  std::shared_ptr<MicrobatchPast> microbatch_;
  uint32_t index_;
  bool again_ = false;
  std::vector<std::pair<size_t, KeysAndValues>> made_;  // keys and values with a graph, by block
};

}  // namespace longhaul::worker
