// Describes a stage's parameters for the exchange between replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "run/model/parameter.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Returns the parameters that gradients train, in order. Matrices may be sparse (with tagc), except
// those that make queries, keys and values. `whole_matrices`: the matrices of transformer blocks
// need a single owner, as Muon requires.
std::vector<ReplicatedParameter> ReplicatedParameters(
    std::span<const model::PlacedParameter> parameters, bool whole_matrices);

// Returns for each bucket the block whose backward pass completes the bucket's gradients, counted
// from the stage's first block. The embedding counts as part of block 0. A bucket of the head alone
// is complete before all blocks: UINT32_MAX. `first_layer`: the stage's first block.
std::vector<uint32_t> FinalWith(const Layout& layout,
                                std::span<const model::PlacedParameter> parameters,
                                uint32_t first_layer);
// Returns the share (0 to 1) of the gradients that are final only when the whole backward pass
// ends. `final_with`: the result of FinalWith.
double ShareFinalAtTheEnd(const Layout& layout, std::span<const uint32_t> final_with);

}  // namespace longhaul::replicas
