// The common part of families with Llama's attention: everything in a block but the MLP. Internal
// to run/model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "run/model/families.h"
#include "run/model/family.h"

namespace longhaul::model {

// Returns the model's parameters. `mlp` returns those that follow a block's second norm.
std::vector<Parameter> ParametersAround(const std::function<std::vector<Parameter>()>& mlp,
                                        const ModelSpec& spec, uint32_t vocabulary_rows);
// The keys of all families with this attention.
std::vector<Key> AttentionKeys();
std::vector<Problem> AttentionProblems(const ModelSpec& spec);
// The values that a block keeps, without those inside its MLP but with the MLP's input.
Kept AttentionKeeps(const ModelSpec& spec, const Ranks& ranks);
Kept RmsNormKeeps(const ModelSpec& spec);

}  // namespace longhaul::model
