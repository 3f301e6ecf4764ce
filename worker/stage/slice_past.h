// What the slices of one microbatch know of each other: keys and values of the earlier ones, to
// which the later ones attend, and on the way back the gradients of these. Of a microbatch of one
// slice that is nothing.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_SLICE_PAST_H_
#define LONGHAUL_WORKER_STAGE_SLICE_PAST_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/stage/model.h"

namespace longhaul::worker {

// Of one microbatch, from its first slice's forward to its first slice's backward: its slices' keys
// and values outside of the graphs that made them. There later slices' backwards sum gradients.
struct MicrobatchPast {
  explicit MicrobatchPast(uint32_t count) : slices(count) {}
  // Of a microbatch like that one, whose slices have all gone forward, and whose passes are
  // recorded: tensors and gradients stay where they are, and each forward fills them anew.
  static std::shared_ptr<MicrobatchPast> ThatStays(const MicrobatchPast& like);

  const uint32_t slices;
  bool stays = false;
  std::vector<std::vector<KeysAndValues>> leaves;  // by block, by slice
};

// Of one slice, which shares its microbatch's.
class SlicePast final : public Past {
 public:
  // Of the only slice of a microbatch.
  SlicePast() : SlicePast(std::make_shared<MicrobatchPast>(1), 0) {}
  SlicePast(std::shared_ptr<MicrobatchPast> microbatch, uint32_t index)
      : microbatch_(std::move(microbatch)), index_(index) {}

  // Blocks run from now on; or they run again, for their backward: what was kept of their first run
  // stays.
  void Begin() { again_ = false; }
  void BeginAgain() { again_ = true; }

  KeysAndValues Extend(size_t block, const KeysAndValues& new_ones) override;

  // Gives what a backward starts from beside the output of the blocks: this slice's keys and values
  // in the graph, and the gradients that all later slices have given them. Blocks that ran without
  // a graph, or before the last call, are left out. What was kept of the others is dropped, unless
  // it stays.
  void TakeRoots(std::vector<at::Tensor>* roots, std::vector<at::Tensor>* gradients);

 private:
  bool is_last() const { return index_ + 1 == microbatch_->slices; }
  void Keep(size_t block, const KeysAndValues& new_ones);

  std::shared_ptr<MicrobatchPast> microbatch_;
  uint32_t index_;
  bool again_ = false;
  std::vector<std::pair<size_t, KeysAndValues>> made_;  // with a graph, by their blocks
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_SLICE_PAST_H_
