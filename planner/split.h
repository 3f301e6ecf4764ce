// Cuts a row of layers into consecutive parts. Pure and exact.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace longhaul::coordinator {

// Time of stage `stage` with `layers` layers, >= 0, in any unit; nullopt: the stage cannot hold so
// many layers.
using StageTime = std::function<std::optional<double>(uint32_t stage, uint32_t layers)>;

// Returns the layers of each of `stages` stages (at least one each) so that the slowest stage is as
// fast as possible. Among these splits it takes the one with the smallest sum of squared times, so
// that no stage gets a needless load. Calls `time` once for each stage and number of layers.
// Dynamic programming, O(stages x layers^2). nullopt: no split is possible.
std::optional<std::vector<uint32_t>> BalanceLayers(uint32_t stages, uint32_t layers,
                                                   const StageTime& time);

}  // namespace longhaul::coordinator
