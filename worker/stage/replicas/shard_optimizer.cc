#include "worker/stage/replicas/shard_optimizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/precise_sleep.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/optimizer/optimizer.h"
#include "worker/stage/snapshot/snapshot_arrays.h"

namespace longhaul::worker {
namespace {

bool IsWhole(const ParameterShard& shard) {
  int64_t elements = 1;
  for (const int64_t size : shard.shape) elements *= size;
  return static_cast<size_t>(elements) == shard.value.size();
}

// A whole parameter keeps its shape; a piece of one is flat.
at::Tensor TensorOver(const ParameterShard& shard, std::span<float> memory,
                      const at::Device& device) {
  const std::vector<int64_t> row = {static_cast<int64_t>(memory.size())};
  return at::from_blob(memory.data(), IsWhole(shard) ? shard.shape : row,
                       at::TensorOptions(at::kFloat).device(device));
}

// "NAME@FIRST": moments add their suffix to that.
Parameter ParameterOf(const ParameterShard& shard, const at::Device& device) {
  LH_CHECK(shard.gradient.size() == shard.value.size(), "a gradient of each value");
  Parameter parameter{.name = PieceName(shard.name, shard.first, ""),
                      .value = TensorOver(shard, shard.value, device),
                      .decays = shard.decays,
                      .block_matrices = shard.block_matrices};
  parameter.value.mutable_grad() = TensorOver(shard, shard.gradient, device);
  return parameter;
}

class TorchShardOptimizer final : public ShardOptimizer {
 public:
  TorchShardOptimizer(const TrainSpec& train, const DeviceName& device, uint32_t threads,
                      std::span<const ParameterShard> shards)
      : threads_(threads) {
    std::vector<Parameter> parameters;
    for (const ParameterShard& shard : shards)
      parameters.push_back(ParameterOf(shard, TorchDevice(device)));
    optimizer_ = Optimizer::Create(train, parameters);
  }

  Status Step(longhaul::Step step, double learning_rate, double gradient_scale) override {
    return CallTorch("optimizer step", threads_, [&]() -> Status {
      optimizer_->Step(step.value(), learning_rate, gradient_scale);
      return absl::OkStatus();
    });
  }

  StatusOr<std::vector<NamedArray>> Moments() const override {
    return CallTorch("snapshot", threads_, [&]() -> StatusOr<std::vector<NamedArray>> {
      std::vector<NamedArray> arrays;
      for (const Optimizer::Moment& moment : optimizer_->moments()) {
        arrays.push_back(ToNamedArray(moment.name, moment.value.view({-1})));
      }
      return arrays;
    });
  }

  Status Restore(const ArrayPieces& moments) override {
    return CallTorch("restoring the optimizer", threads_, [&]() -> Status {
      const at::NoGradGuard no_grad;
      for (const Optimizer::Moment& moment : optimizer_->moments()) {
        const auto [name, first] = WholeName(moment.name);
        std::vector<float> values(static_cast<size_t>(moment.value.numel()));
        LH_RETURN_IF_ERROR(moments.Read(name, first, values));
        moment.value.copy_(at::from_blob(values.data(), moment.value.sizes()));
      }
      return absl::OkStatus();
    });
  }

 private:
  const uint32_t threads_;
  std::unique_ptr<Optimizer> optimizer_;
};

// For a replay: sleeps as long as the optimizer took where it was measured, and changes nothing.
class ReplayShardOptimizer final : public ShardOptimizer {
 public:
  explicit ReplayShardOptimizer(absl::Duration step) : step_(step) {}
  Status Step(longhaul::Step, double, double) override {
    SleepPreciselyUntil(Now() + step_);
    return absl::OkStatus();
  }
  StatusOr<std::vector<NamedArray>> Moments() const override { return std::vector<NamedArray>(); }
  Status Restore(const ArrayPieces&) override { return absl::OkStatus(); }

 private:
  const absl::Duration step_;
};

}  // namespace

std::unique_ptr<ShardOptimizer> ShardOptimizer::OfReplay(absl::Duration step) {
  return std::make_unique<ReplayShardOptimizer>(step);
}

StatusOr<std::unique_ptr<ShardOptimizer>> ShardOptimizer::Create(
    const TrainSpec& train, const DeviceName& device, uint32_t threads,
    std::vector<ParameterShard> shards) {
  return CallTorch("making the optimizer", threads,
                   [&]() -> StatusOr<std::unique_ptr<ShardOptimizer>> {
                     return std::make_unique<TorchShardOptimizer>(train, device, threads, shards);
                   });
}

}  // namespace longhaul::worker
