// What families with Llama's attention share: everything in a block but the MLP. Internal to
// run/model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "run/model/families.h"
#include "run/model/family.h"

namespace longhaul::model {

// The model's parameters. `mlp` gives those that follow a block's second norm.
std::vector<Parameter> ParametersAround(const std::function<std::vector<Parameter>()>& mlp,
                                        const ModelSpec& spec, uint32_t vocabulary_rows);
// The keys that all of them have.
std::vector<Key> AttentionKeys();
std::vector<Problem> AttentionProblems(const ModelSpec& spec);
// What a block keeps, except what its MLP keeps. Includes the MLP's input.
Kept AttentionKeeps(const ModelSpec& spec, const Ranks& ranks);
Kept RmsNormKeeps(const ModelSpec& spec);

}  // namespace longhaul::model
