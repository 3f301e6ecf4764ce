#include "transport/replicas/parameters.h"

namespace longhaul::replicas {
namespace {

// Makes queries, keys or values: its outputs are channels of heads.
bool FeedsAttention(const model::Parameter& parameter) {
  return parameter.split.along == model::Along::kRows &&
         (parameter.split.unit == model::Unit::kHead ||
          parameter.split.unit == model::Unit::kKvHead);
}

}  // namespace

std::vector<ReplicatedParameter> ReplicatedParameters(
    std::span<const model::PlacedParameter> parameters, bool whole_matrices) {
  std::vector<ReplicatedParameter> list;
  for (const model::PlacedParameter& placed : parameters) {
    const model::Parameter& parameter = placed.parameter;
    if (parameter.frozen || parameter.balances) continue;
    list.push_back({.name = placed.Name(),
                    .elements = parameter.shape.elements(),
                    .may_be_sparse = parameter.shape.is_matrix() && !FeedsAttention(parameter),
                    .whole = whole_matrices && parameter.is_block_matrix()});
  }
  return list;
}

}  // namespace longhaul::replicas
