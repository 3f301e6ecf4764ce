// Converts the token tables of codec `predict` (codec/predict/tables.h) to arrays of a checkpoint
// and back. Names contain the number of layers before the boundary. Rows of tokens and pairs are in
// bf16, all others in fp32.
//
//   boundary.after_layer_4.mean                         (channels)
//   boundary.after_layer_4.tokens, .pairs               (vocabulary, channels), (pairs, channels)
//   boundary.after_layer_4.mean_count, .token_counts,   one number for each row of these
//       .pair_counts
//   boundary.after_layer_4.check                        the tables' 64-bit hash as 4 numbers of 16
//                                                       bits, the low bits first
//
// The stage before the boundary saves the arrays in its checkpoint; both sides restore from them.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "codec/predict/tables.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// `layers_before`: number of the model's layers before the boundary.
std::vector<NamedArray> ArraysOf(const codec::predict::Tables& tables, uint32_t layers_before);

// Makes tables from arrays. Returns nullopt if `arrays` has no tables of this boundary.
// kFailedPrecondition: an array is missing, has another shape, or has impossible values.
// kResourceExhausted: no memory for the tables.
StatusOr<std::optional<codec::predict::Tables>> TablesFrom(
    const std::vector<NamedArray>& arrays, uint32_t layers_before,
    const codec::predict::TablesShape& shape);

}  // namespace longhaul::worker
