#include "planner/split.h"

#include <algorithm>
#include <limits>

namespace longhaul::coordinator {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

using Table = std::vector<std::vector<double>>;  // [stage][layers]

// best[s][n]: over all ways to give n layers to the first s stages, the least of `combine` (of
// times). `choice` gets the last stage's share.
Table Solve(uint32_t stages, uint32_t layers, const Table& cost,
            const std::function<double(double, double)>& combine,
            std::vector<std::vector<uint32_t>>* choice) {
  Table best(stages + 1, std::vector<double>(layers + 1, kImpossible));
  choice->assign(stages + 1, std::vector<uint32_t>(layers + 1, 0));
  best[0][0] = 0;
  for (uint32_t s = 1; s <= stages; ++s) {
    for (uint32_t n = s; n <= layers; ++n) {
      for (uint32_t share = 1; share <= n; ++share) {
        const double before = best[s - 1][n - share], here = cost[s - 1][share];
        if (before == kImpossible || here == kImpossible) continue;
        const double value = combine(before, here);
        if (value < best[s][n]) {
          best[s][n] = value;
          (*choice)[s][n] = share;
        }
      }
    }
  }
  return best;
}

}  // namespace

std::optional<std::vector<uint32_t>> BalanceLayers(uint32_t stages, uint32_t layers,
                                                   const StageTime& time) {
  if (stages == 0 || layers < stages) return std::nullopt;
  Table cost(stages, std::vector<double>(layers + 1, kImpossible));
  for (uint32_t s = 0; s < stages; ++s) {
    for (uint32_t n = 1; n <= layers; ++n) cost[s][n] = time(s, n).value_or(kImpossible);
  }
  std::vector<std::vector<uint32_t>> choice;
  const double slowest =
      Solve(
          stages, layers, cost, [](double a, double b) { return std::max(a, b); }, &choice)
          .back()
          .back();
  if (slowest == kImpossible) return std::nullopt;
  for (auto& row : cost) {
    for (double& value : row) value = value > slowest ? kImpossible : value * value;
  }
  Solve(
      stages, layers, cost, [](double a, double b) { return a + b; }, &choice);
  std::vector<uint32_t> split(stages);
  uint32_t left = layers;
  for (uint32_t s = stages; s > 0; --s) {
    split[s - 1] = choice[s][left];
    left -= split[s - 1];
  }
  return split;
}

}  // namespace longhaul::coordinator
