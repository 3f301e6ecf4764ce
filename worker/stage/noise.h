// Random tensors that look like activations to a codec. Measurements and replays use them.
#pragma once

#include "codec/codec.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Returns fp32 numbers in host memory that are nearly normally distributed, with mean 0 and
// standard deviation 0.58. Calls with the same shape return the same numbers on each machine.
// Cannot fail. Thread-safe.
BoundaryTensor NoiseTensor(const codec::Shape& shape);

}  // namespace longhaul::worker
