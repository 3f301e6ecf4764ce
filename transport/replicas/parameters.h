// Describes a stage's parameters for the exchange between replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "run/model/parameter.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Returns the parameters that gradients train, in order: leaves out frozen parameters and the
// biases that balance experts. Marks the matrices that may be sparse with tagc: all except those
// that make queries, keys and values. `whole_matrices`: if true, each matrix of a transformer block
// must have a single owner, as Muon requires.
std::vector<ReplicatedParameter> ReplicatedParameters(
    std::span<const model::PlacedParameter> parameters, bool whole_matrices);

// Returns for each bucket the transformer block whose backward pass completes the bucket's
// gradients. Blocks are counted from 0 in the stage. The embedding counts as part of block 0. The
// result is UINT32_MAX for a bucket of the head alone, which is complete before all blocks.
// `first_layer`: the model's index of the stage's first block.
std::vector<uint32_t> FinalWith(const Layout& layout,
                                std::span<const model::PlacedParameter> parameters,
                                uint32_t first_layer);
// Returns the share, 0 to 1, of the gradients that are complete only at the end of the whole
// backward pass; 1 if there are no parameters. `final_with`: the result of FinalWith.
double ShareFinalAtTheEnd(const Layout& layout, std::span<const uint32_t> final_with);

}  // namespace longhaul::replicas
