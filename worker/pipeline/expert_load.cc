#include "worker/pipeline/expert_load.h"

#include <algorithm>
#include <numeric>

namespace longhaul::worker {

std::optional<v1::ExpertLoad> ExpertLoadOf(const std::vector<std::vector<int64_t>>& tokens,
                                           uint32_t first_layer) {
  v1::ExpertLoad load;
  double sum = 0;
  uint32_t blocks = 0;
  for (size_t block = 0; block < tokens.size(); ++block) {
    const std::vector<int64_t>& of_experts = tokens[block];
    const int64_t all = std::accumulate(of_experts.begin(), of_experts.end(), int64_t{0});
    if (all == 0) continue;
    const double ratio = static_cast<double>(std::ranges::max(of_experts)) *
                         static_cast<double>(of_experts.size()) / static_cast<double>(all);
    sum += ratio;
    ++blocks;
    if (ratio <= load.highest()) continue;
    load.set_highest(ratio);
    load.set_layer(first_layer + static_cast<uint32_t>(block));
  }
  if (blocks == 0) return std::nullopt;
  load.set_mean(sum / blocks);
  return load;
}

}  // namespace longhaul::worker
