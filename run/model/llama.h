// The common part of families with Llama's attention: everything in a block but the MLP. Internal
// to run/model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "run/model/families.h"
#include "run/model/family.h"

namespace longhaul::model {

// Returns the model's parameters. `mlp` must return the parameters of a block's MLP, which follow
// the block's second norm.
std::vector<Parameter> ParametersAround(const std::function<std::vector<Parameter>()>& mlp,
                                        const ModelSpec& spec, uint32_t vocabulary_rows);
// The keys of all families with this attention.
std::vector<Key> AttentionKeys();
// Returns impossible combinations of these keys.
std::vector<Problem> AttentionProblems(const ModelSpec& spec);
// Return the number of values that autograd keeps for each token: AttentionKeeps of a block up to
// the input of its MLP, RmsNormKeeps of one norm.
Kept AttentionKeeps(const ModelSpec& spec, const Ranks& ranks);
Kept RmsNormKeeps(const ModelSpec& spec);

}  // namespace longhaul::model
