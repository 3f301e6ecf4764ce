// Measures how evenly a stage's experts are loaded. The load of a block is the number of tokens of
// its busiest expert, divided by the mean number of tokens per expert. 1: perfectly even. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// Returns the highest load of the stage's blocks, the layer of that block, and the mean load.
// Blocks without tokens do not count; nullopt: no block got a token. `tokens`: the result of
// Stage::TokensOfExperts. `first_layer`: number of the stage's first block in the model.
std::optional<v1::ExpertLoad> ExpertLoadOf(const std::vector<std::vector<int64_t>>& tokens,
                                           uint32_t first_layer);

}  // namespace longhaul::worker
