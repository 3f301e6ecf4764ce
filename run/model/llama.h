// What the families with Llama's attention have in common: all of a block but its MLP. Internal to
// run/model.
#ifndef LONGHAUL_RUN_MODEL_LLAMA_H_
#define LONGHAUL_RUN_MODEL_LLAMA_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "run/model/families.h"
#include "run/model/family.h"

namespace longhaul::model {

// The model's parameters, with what `mlp` gives behind the second norm of a block.
std::vector<Parameter> ParametersAround(const std::function<std::vector<Parameter>()>& mlp,
                                        const ModelSpec& spec, uint32_t vocabulary_rows);
// The keys that all of them have.
std::vector<Key> AttentionKeys();
std::vector<Problem> AttentionProblems(const ModelSpec& spec);
// What a block keeps without what its MLP keeps. The MLP's input is counted here.
Kept AttentionKeeps(const ModelSpec& spec, const Ranks& ranks);
Kept RmsNormKeeps(const ModelSpec& spec);

}  // namespace longhaul::model

#endif  // LONGHAUL_RUN_MODEL_LLAMA_H_
