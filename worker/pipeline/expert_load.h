// Measures how evenly a stage's experts are loaded. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// `tokens`: the result of Stage::TokensOfExperts, for the blocks from `first_layer` on. Returns
// nullopt if no block has experts that got tokens.
std::optional<v1::ExpertLoad> ExpertLoadOf(const std::vector<std::vector<int64_t>>& tokens,
                                           uint32_t first_layer);

}  // namespace longhaul::worker
