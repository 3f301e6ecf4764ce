// The parameters of a stage as replicas exchange them, by what families of models say of each.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_PARAMETERS_H_
#define LONGHAUL_TRANSPORT_REPLICAS_PARAMETERS_H_

#include <span>
#include <vector>

#include "run/model/parameter.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Those that have gradients, in their order. tagc's: matrices but those that make queries, keys and
// values. `whole_matrices`: blocks' matrices have one owner each, as Muon wants them.
std::vector<ReplicatedParameter> ReplicatedParameters(
    std::span<const model::PlacedParameter> parameters, bool whole_matrices);

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_PARAMETERS_H_
