// Token ids behind the blobs of a boundary. A codec that predicts activations by their tokens
// (codec/predict) needs the token ids at the stage that sends. Stages in the middle read no text,
// so they get the ids from the stage above. A blob of `predict` has the ids in it. On a boundary
// with another codec, if a boundary below predicts, the ids follow each blob of an activation.
// Clean validations (worker/pipeline/pass.h) predict nothing, and their blobs come alone.
//
// The ids have 2 bytes each, or 4 if the vocabulary has more than 65,536 ids, in little-endian
// order, sample by sample; zeros follow up to a multiple of 16 bytes.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "run/plan/plan.h"

namespace longhaul {

// True if token ids follow the activations' blobs over this edge of the assignment.
bool CarriesTokens(const Assignment& assignment, const Edge& edge);

// Bytes of the ids behind the blob of a tensor of this shape. `vocabulary`: number of ids.
size_t CarriedBytes(const codec::Shape& shape, uint32_t vocabulary);
// Writes the ids of a tensor's tokens to `behind`, which must have CarriedBytes.
void WriteCarried(std::span<const uint32_t> ids, uint32_t vocabulary, std::span<std::byte> behind);
// Reads the ids of a tensor of this shape. kInvalidArgument: `behind`, which may be hostile, has
// another size or an id beyond the vocabulary.
StatusOr<std::vector<uint32_t>> ReadCarried(std::span<const std::byte> behind,
                                            const codec::Shape& shape, uint32_t vocabulary);

}  // namespace longhaul
