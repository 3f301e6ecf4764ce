// Measures how evenly a stage's experts are loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// Computes the load from the result of Stage::TokensOfExperts. `first_layer`: number of the stage's
// first block in the model. Returns nullopt if no expert got a token.
std::optional<v1::ExpertLoad> ExpertLoadOf(const std::vector<std::vector<int64_t>>& tokens,
                                           uint32_t first_layer);

}  // namespace longhaul::worker
