// The optimizer of shards of a stage's parameters: the pieces that this replica steps on behalf of
// all data-parallel replicas. Memory is the host's or a GPU's.
//
// A piece is updated exactly as within the whole parameter, except for the random bits that round
// bf16 state. Muon needs whole matrices.
//
// Threads: one at a time. Errors: kInternal (LibTorch's exception).
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

// Elements [first, first + value.size()) of a parameter. Its memory outlives the optimizer.
struct ParameterShard {
  std::string name;            // the whole parameter's
  std::vector<int64_t> shape;  // of the whole parameter
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/model/layers.h
  uint64_t first = 0;
  std::span<float> gradient, value;
};

class ShardOptimizer {
 public:
  // `device`: owner of the memory that all spans point to.
  static StatusOr<std::unique_ptr<ShardOptimizer>> Create(const TrainSpec& train,
                                                          const DeviceName& device,
                                                          uint32_t threads,
                                                          std::vector<ParameterShard> shards);
  // Makes an optimizer that sleeps for `step` instead of computing, for a replay.
  static std::unique_ptr<ShardOptimizer> OfReplay(absl::Duration step);
  virtual ~ShardOptimizer() = default;

  // As Stage::OptimizerStep, but gradients are kept.
  virtual Status Step(longhaul::Step step, double learning_rate, double gradient_scale) = 0;
  // The optimizer state, as pieces (snapshot_shards.h).
  virtual StatusOr<std::vector<NamedArray>> Moments() const = 0;
  // kFailedPrecondition: a part of the state is missing.
  virtual Status Restore(const ArrayPieces& moments) = 0;
};

}  // namespace longhaul::worker
