// Muon (Jordan et al., 2024) for the matrices of blocks. All other parameters (embedding,
// positions, head, norms and biases) are updated by AdamW.
//
// Each step adds the gradient of a matrix to its momentum. The update is Nesterov's sum of gradient
// and momentum, with singular values set to about 1, times 0.2 sqrt(max(rows, columns)). The factor
// 0.2 sqrt(max(rows, columns)) makes updates as large as those of AdamW (Liu et al., 2025,
// Moonshot), so one learning rate and weight decay serve both. Matrices that are stacked in one
// parameter (queries, keys and values) are updated separately.
//
// In a group the matrices that ranks hold in parts are dealt out: each is put together on one rank,
// which computes its update and sends every rank its part (group/matrix_parts.h). An update is that
// of the whole matrix, so it does not depend on the number of ranks but for rounding. Matrices that
// a rank holds whole are updated by each rank that holds them.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "run/file/run_spec.h"
#include "worker/stage/group/matrix_parts.h"
#include "worker/stage/model/layers.h"
#include "worker/stage/optimizer/adamw.h"
#include "worker/stage/optimizer/optimizer.h"

namespace longhaul::worker {

// Returns matrices with the same singular vectors, but with singular values of 0.68 to 1.14, by
// five Newton-Schulz iterations. Singular values that are tiny beside the largest one stay below
// 0.68; zeros stay zeros. `matrices`: (matrices, rows, columns) fp32. `compute_type`: the type of
// the products; Muon uses kBFloat16 on a GPU, else kFloat.
at::Tensor Orthogonalized(const at::Tensor& matrices, at::ScalarType compute_type);

class Muon final : public Optimizer {
 public:
  // `group`: as for Optimizer::Create.
  Muon(const TrainSpec& train, const std::vector<Parameter>& parameters,
       const RankGroup* group = nullptr);

  void Step(uint64_t step, double learning_rate, double gradient_scale) override;
  void MoveTo(const std::vector<Parameter>& parameters) override;
  // The optimizer state: "momentum" of each matrix, in order, then AdamW's state of the other
  // parameters.
  const std::vector<Moment>& moments() const override { return moments_; }

 private:
  struct Matrix {
    std::string name;  // of the parameter
    at::Tensor value;
    int64_t stacked = 1;            // number of matrices in `value`
    int64_t rows = 0, columns = 0;  // of each of them, whole
    double weight_decay = 0;
    at::Tensor momentum;
    std::shared_ptr<const MatrixParts> parts;  // as in Parameter
  };
  // Adds the gradient to the momentum and returns Nesterov's sum of both, fp32.
  at::Tensor AddToMomentum(const Matrix& matrix, uint64_t step, double gradient_scale) const;
  // Returns the orthogonal matrices for `sum`, the whole of what AddToMomentum returned.
  static at::Tensor OrthogonalOf(const Matrix& matrix, const at::Tensor& sum);
  // `orthogonal`: this rank's part of OrthogonalOf.
  static void Apply(const Matrix& matrix, const at::Tensor& orthogonal, double learning_rate);

  const OptimizerSpec spec_;
  const uint64_t seed_;
  const RankGroup* const group_;
  std::vector<Matrix> matrices_;
  // Indices of the matrices that ranks hold in parts, the largest first.
  std::vector<size_t> in_parts_;
  AdamW others_;
  std::vector<Moment> moments_;
};

}  // namespace longhaul::worker
