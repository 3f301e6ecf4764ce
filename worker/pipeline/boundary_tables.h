// Converts the token tables of codec `predict` (codec/predict/tables.h) to fp32 arrays of a
// checkpoint and back. Names contain the layer before the boundary.
//
//   boundary.after_layer_4.tokens, .pairs               (vocabulary, channels), (pairs, channels)
//   boundary.after_layer_4.token_counts, .pair_counts   one a row
//   boundary.after_layer_4.check                        16 bits a number, the low ones first
//
// The stage before the boundary writes the arrays; both sides read them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "codec/predict/tables.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// `layers_before`: the model's layers before the boundary.
std::vector<NamedArray> ArraysOf(const codec::predict::Tables& tables, uint32_t layers_before);

// nullopt if `arrays` has none of this boundary. kFailedPrecondition if they have another shape or
// are not tables.
StatusOr<std::optional<codec::predict::Tables>> TablesFrom(
    const std::vector<NamedArray>& arrays, uint32_t layers_before,
    const codec::predict::TablesShape& shape);

}  // namespace longhaul::worker
