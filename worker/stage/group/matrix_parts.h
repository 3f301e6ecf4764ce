// Matrices that the ranks of a group hold in parts, for work that needs whole matrices: Muon's
// updates.
//
// Internal to worker/stage (it shows LibTorch). Threads: the rank's thread. All ranks must make the
// same calls in the same order. Errors: StatusError (torch_scope.h), after which the group has
// ended.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "run/model/share.h"

namespace longhaul::worker {

class RankGroup;

// How ranks divide one matrix (rows, columns). A part is (rows of the rank, columns), or (rows,
// columns of the rank); it has the rank's ranges one after another.
class MatrixParts {
 public:
  // Returns the division of `parameter` among all ranks. Null: each rank that holds a part of the
  // parameter holds all of it. Aborts if the model cannot be split so.
  static std::shared_ptr<const MatrixParts> Of(const ModelSpec& spec,
                                               const model::Parameter& parameter,
                                               const model::Ranks& ranks);

  int64_t rows() const { return rows_; }  // of the whole matrix
  int64_t columns() const { return columns_; }
  int64_t ElementsOf(uint32_t rank) const;
  // Returns a dense copy of the part of `rank` of the matrix `whole`.
  at::Tensor Cut(const at::Tensor& whole, uint32_t rank) const;
  // Copies `part`, the part of `rank` with any shape, into the matrix `whole`.
  void Place(const at::Tensor& part, uint32_t rank, const at::Tensor& whole) const;

 private:
  int64_t rows_ = 0, columns_ = 0;
  int64_t along_ = 0;  // the dimension that is divided
  std::vector<std::vector<model::Range>> of_rank_;
};

// This rank's part of a matrix, as the ranks divide it.
struct PartOfMatrix {
  const MatrixParts* parts = nullptr;
  at::Tensor part;
};

// Computes with whole matrices. Rank k puts matrix k together and calls `compute(k, whole)`, so the
// ranks share the work. The result must have the shape of the matrix. Returns this rank's part of
// each result. `matrices`: at most as many as there are ranks, of one type, the same on all ranks.
std::vector<at::Tensor> ComputeWhole(
    const RankGroup& group, std::span<const PartOfMatrix> matrices,
    const std::function<at::Tensor(size_t index, const at::Tensor& whole)>& compute);

}  // namespace longhaul::worker
