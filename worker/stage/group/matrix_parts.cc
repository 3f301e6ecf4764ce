#include "worker/stage/group/matrix_parts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/check.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/group/rank_group.h"

namespace longhaul::worker {

std::shared_ptr<const MatrixParts> MatrixParts::Of(const ModelSpec& spec,
                                                   const model::Parameter& parameter,
                                                   const model::Ranks& ranks) {
  const bool by_columns = parameter.split.along == model::Along::kColumns;
  if (!parameter.shape.is_matrix() || (!by_columns && parameter.split.along != model::Along::kRows))
    return nullptr;
  auto parts = std::make_shared<MatrixParts>();
  parts->rows_ = parameter.shape.rows;
  parts->columns_ = parameter.shape.columns;
  parts->along_ = by_columns ? 1 : 0;
  for (uint32_t rank = 0; rank < ranks.count; ++rank) {
    auto share = model::ShareOf(spec, parameter, rank, ranks);
    ThrowIfError(share.status());
    parts->of_rank_.push_back(std::move(share->ranges));
  }
  const auto whole = parts->rows_ * parts->columns_;
  return parts->ElementsOf(0) == whole ? nullptr : parts;
}

int64_t MatrixParts::ElementsOf(uint32_t rank) const {
  int64_t extent = 0;
  for (const auto& [begin, end] : of_rank_[rank]) extent += end - begin;
  return extent * (along_ == 0 ? columns_ : rows_);
}

at::Tensor MatrixParts::Cut(const at::Tensor& whole, uint32_t rank) const {
  std::vector<at::Tensor> ranges;
  for (const auto& [begin, end] : of_rank_[rank]) {
    ranges.push_back(whole.narrow(along_, begin, end - begin));
  }
  return at::cat(ranges, along_);
}

void MatrixParts::Place(const at::Tensor& part, uint32_t rank, const at::Tensor& whole) const {
  const at::Tensor shaped = along_ == 0 ? part.view({-1, columns_}) : part.view({rows_, -1});
  int64_t first = 0;
  for (const auto& [begin, end] : of_rank_[rank]) {
    whole.narrow(along_, begin, end - begin).copy_(shaped.narrow(along_, first, end - begin));
    first += end - begin;
  }
}

std::vector<at::Tensor> ComputeWhole(
    const RankGroup& group, std::span<const PartOfMatrix> matrices,
    const std::function<at::Tensor(size_t index, const at::Tensor& whole)>& compute) {
  const uint32_t ranks = group.size(), own = group.rank();
  LH_CHECK(!matrices.empty() && matrices.size() <= ranks, "{} matrices for {} ranks",
           matrices.size(), ranks);
  // Numbers of each matrix, which go to the rank that computes with it; and numbers of the own
  // matrix, which come from each rank.
  std::vector<int64_t> to(ranks), from(ranks);
  std::vector<at::Tensor> sent;
  for (size_t k = 0; k < matrices.size(); ++k) {
    to[k] = matrices[k].parts->ElementsOf(own);
    sent.push_back(matrices[k].part.reshape({-1}));
  }
  const bool computes = own < matrices.size();
  const MatrixParts* const parts = computes ? matrices[own].parts : nullptr;
  for (uint32_t rank = 0; computes && rank < ranks; ++rank) from[rank] = parts->ElementsOf(rank);

  const auto exchange = [&](const at::Tensor& numbers, const std::vector<int64_t>& send,
                            const std::vector<int64_t>& receive) {
    return group.SendRows(&RankCommunicators::exact, numbers.view({-1, 1}), send, receive)
        .view({-1});
  };
  at::Tensor received = exchange(at::cat(sent), to, from);
  at::Tensor results = received;  // empty where the rank computes nothing
  if (computes) {
    const at::Tensor whole = at::empty({parts->rows(), parts->columns()}, received.options());
    const std::vector<at::Tensor> by_rank = received.split_with_sizes(from);
    for (uint32_t rank = 0; rank < ranks; ++rank) parts->Place(by_rank[rank], rank, whole);
    const at::Tensor result = compute(own, whole);
    std::vector<at::Tensor> cuts;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      cuts.push_back(parts->Cut(result, rank).reshape({-1}));
    }
    results = at::cat(cuts);
  }
  const at::Tensor back = exchange(results, from, to);
  std::vector<at::Tensor> own_parts;
  const std::vector<at::Tensor> of_matrices = back.split_with_sizes(to);
  for (size_t k = 0; k < matrices.size(); ++k) {
    own_parts.push_back(of_matrices[k].view(matrices[k].part.sizes()));
  }
  return own_parts;
}

}  // namespace longhaul::worker
