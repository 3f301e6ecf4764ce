// Describes a stage's parameters for the exchange between replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "run/model/parameter.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// The trained parameters, in order. With tagc, matrices are sparse, except those that make queries,
// keys and values. `whole_matrices`: matrices of blocks need a single owner, as Muon requires.
std::vector<ReplicatedParameter> ReplicatedParameters(
    std::span<const model::PlacedParameter> parameters, bool whole_matrices);

// Returns for each bucket the block whose backward completes the bucket's gradients, counted from
// the stage's first. The head counts as after the last block, the embedding as part of block 0.
// `first_layer`: the stage's.
std::vector<uint32_t> FinalWith(const Layout& layout,
                                std::span<const model::PlacedParameter> parameters,
                                uint32_t first_layer);
// Returns the share of the gradients that are final only when the backward ends.
double ShareFinalAtTheEnd(const Layout& layout, std::span<const uint32_t> final_with);

}  // namespace longhaul::replicas
