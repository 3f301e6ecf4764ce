// The optimizer for a replica's shard of a stage's parameters: the pieces that this replica updates
// for all data-parallel replicas. The pieces are in host memory or on a GPU.
//
// A piece gets exactly the update that it would get with the whole parameter, except for the random
// bits that round bf16 state. With Muon, a piece of a block's matrix must be a whole parameter.
//
// Threads: one at a time. Errors of all methods: kResourceExhausted (memory) and kInternal
// (LibTorch's exception).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "base/ids.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "worker/stage/snapshot/snapshot_shards.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// A piece of a parameter: its elements [first, first + value.size()), row-major. Each step reads
// `gradient` and updates `value`; both have the same size. `decays`: weight decay applies. The
// memory of the spans must outlive the optimizer.
struct ParameterShard {
  std::string name;            // of the whole parameter
  std::vector<int64_t> shape;  // of the whole parameter
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/model/layers.h
  uint64_t first = 0;
  std::span<float> gradient, value;
};

class ShardOptimizer {
 public:
  // `device`: the device in whose memory all spans are. `threads`: LibTorch's threads.
  static StatusOr<std::unique_ptr<ShardOptimizer>> Create(const TrainSpec& train,
                                                          const DeviceName& device,
                                                          uint32_t threads,
                                                          std::vector<ParameterShard> shards);
  // Makes an optimizer for a replay. Its Step sleeps for the time `step` instead of computing. It
  // has no optimizer state.
  static std::unique_ptr<ShardOptimizer> OfReplay(absl::Duration step);
  virtual ~ShardOptimizer() = default;

  // Updates all pieces, as Stage::OptimizerStep. Does not clear the gradients, and checks neither
  // the order of steps nor `gradient_scale`.
  virtual Status Step(longhaul::Step step, double learning_rate, double gradient_scale) = 0;
  // Returns the optimizer state as pieces (snapshot_shards.h).
  virtual StatusOr<std::vector<NamedArray>> Moments() const = 0;
  // Restores the optimizer state from `moments`. kFailedPrecondition: a part of it is missing.
  virtual Status Restore(const ArrayPieces& moments) = 0;
};

}  // namespace longhaul::worker
