// The optimizer of some pieces of a stage's parameters, in memory of the host or of a GPU: of those
// that this replica of the stage steps for all replicas.
//
// A piece of a parameter is updated as it would be in the whole, but for the random bits with which
// moments in bf16 are rounded. Muon has whole matrices alone.
//
// Threads: one at a time. Errors: kInternal (LibTorch's exception).
#ifndef LONGHAUL_WORKER_STAGE_SHARD_OPTIMIZER_H_
#define LONGHAUL_WORKER_STAGE_SHARD_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "base/ids.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "worker/stage/snapshot_shards.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Elements [first, first + value.size()) of a parameter. The memory outlives the optimizer.
struct ParameterShard {
  std::string name;            // the parameter's
  std::vector<int64_t> shape;  // of the whole parameter
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/layers.h
  uint64_t first = 0;
  std::span<float> gradient, value;
};

class ShardOptimizer {
 public:
  // `device`: in whose memory all spans are.
  static StatusOr<std::unique_ptr<ShardOptimizer>> Create(const TrainSpec& train,
                                                          const DeviceName& device,
                                                          uint32_t threads,
                                                          std::vector<ParameterShard> shards);
  // That sleeps instead of stepping.
  static std::unique_ptr<ShardOptimizer> OfReplay(absl::Duration step);
  virtual ~ShardOptimizer() = default;

  // As Stage::OptimizerStep, but that gradients stay.
  virtual Status Step(longhaul::Step step, double learning_rate, double gradient_scale) = 0;
  // What is remembered between steps, as pieces (snapshot_shards.h).
  virtual StatusOr<std::vector<NamedArray>> Moments() const = 0;
  // kFailedPrecondition: some of it is missing.
  virtual Status Restore(const ArrayPieces& moments) = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_SHARD_OPTIMIZER_H_
