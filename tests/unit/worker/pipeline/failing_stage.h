// A last stage that computes nothing and can be told to fail.
#pragma once

#include <optional>
#include <vector>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// A last stage of which LibTorch fails.
class FailingStage final : public Stage {
 public:
  explicit FailingStage(const codec::Shape& shape) : shape_(shape), values_(shape.elements()) {}

  StatusOr<std::optional<BoundaryTensor>> Forward(Slice, const Input&) override {
    return std::nullopt;
  }
  StatusOr<double> Loss(Slice) const override { return 1; }
  StatusOr<std::optional<BoundaryTensor>> Backward(Slice, const codec::TensorView&) override {
    return BoundaryTensor{{values_.data(), codec::Dtype::kF32, shape_}, nullptr};
  }
  StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice, const Input&, double*) override {
    return absl::UnimplementedError("no validation here");
  }
  StatusOr<SquaredNorm> AddSquaredGradientNorm(double) const override {
    if (!norm.ok()) return norm;
    return SquaredNorm{.sum = 1, .own = 1};
  }
  Status OptimizerStep(Step, double, double) override { return absl::OkStatus(); }
  Status SkipStep(Step) override { return absl::OkStatus(); }
  StatusOr<StageSnapshot> Snapshot() const override {
    return absl::ResourceExhaustedError("snapshot: no memory");
  }
  Status Restore(const StageSnapshot&) override { return absl::OkStatus(); }
  Status Load(const ReadParameter&) override { return absl::OkStatus(); }
  Status DropStep() override { return absl::OkStatus(); }
  uint64_t steps() const override { return 0; }
  uint64_t parameter_count() const override { return 0; }

  Status norm;

 private:
  const codec::Shape shape_;
  const std::vector<float> values_;
};

}  // namespace longhaul::worker
