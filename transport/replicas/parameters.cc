#include "transport/replicas/parameters.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

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

std::vector<uint32_t> FinalWith(const Layout& layout,
                                std::span<const model::PlacedParameter> parameters,
                                uint32_t first_layer) {
  constexpr uint32_t kHead = std::numeric_limits<uint32_t>::max();
  std::map<std::string, uint32_t> block_of;
  for (const model::PlacedParameter& placed : parameters) {
    const model::Role role = placed.parameter.role;
    block_of[placed.Name()] = role == model::Role::kBlock  ? placed.block - first_layer
                              : role == model::Role::kHead ? kHead
                                                           : 0;
  }
  std::vector<uint32_t> final_with;
  for (const Bucket& bucket : layout.buckets()) {
    uint32_t first = kHead;
    for (const uint32_t parameter : bucket.parameters) {
      first = std::min(first, block_of[layout.parameters()[parameter].name]);
    }
    final_with.push_back(first);
  }
  return final_with;
}

double ShareFinalAtTheEnd(const Layout& layout, std::span<const uint32_t> final_with) {
  uint64_t all = 0, at_the_end = 0;
  for (size_t b = 0; b < final_with.size(); ++b) {
    uint64_t elements = 0;
    for (const Shard& shard : layout.buckets()[b].shards) {
      for (const Piece& piece : shard.pieces()) elements += piece.count;
    }
    all += elements;
    if (final_with[b] == 0) at_the_end += elements;
  }
  return all == 0 ? 1 : static_cast<double>(at_the_end) / static_cast<double>(all);
}

}  // namespace longhaul::replicas
