// The parameters of a stage as replicas exchange them, by what families of models say of each.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_PARAMETERS_H_
#define LONGHAUL_TRANSPORT_REPLICAS_PARAMETERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "run/model/parameter.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Those that have gradients, in their order. tagc's: matrices but those that make queries, keys and
// values. `whole_matrices`: blocks' matrices have one owner each, as Muon wants them.
std::vector<ReplicatedParameter> ReplicatedParameters(
    std::span<const model::PlacedParameter> parameters, bool whole_matrices);

// Of each bucket of a stage whose blocks begin at `first_layer`: with which of its blocks, counted
// from 0, a backward has all of the bucket's gradients. The head is behind the last block; with
// block 0 and the embedding a backward ends.
std::vector<uint32_t> FinalWith(const Layout& layout,
                                std::span<const model::PlacedParameter> parameters,
                                uint32_t first_layer);
// Which part of a stage's gradients is final at the end of a backward alone.
double ShareFinalAtTheEnd(const Layout& layout, std::span<const uint32_t> final_with);

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_PARAMETERS_H_
