// The token ids that go with an activation, for codecs that predict by tokens. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

// Returns the ids of a slice's tokens, for each sample of its activation
// (run/boundary/boundary_shape.h). `tokens`: those of the whole microbatch, sample by sample.
std::vector<uint32_t> TokenIds(std::span<const int32_t> tokens, const RunSpec& spec, Slice slice);

// Compares the ids that came with an activation to those that this stage read itself.
// kInvalidArgument: they differ.
Status CheckTokens(const std::vector<uint32_t>& came, const std::vector<uint32_t>& read);

}  // namespace longhaul::worker
