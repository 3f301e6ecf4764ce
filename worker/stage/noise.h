// Random tensors that look like activations to a codec. Measuring and replays send them.
#pragma once

#include "codec/codec.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// fp32, normal with mean 0 and standard deviation 0.58; the same on every machine.
BoundaryTensor NoiseTensor(const codec::Shape& shape);

}  // namespace longhaul::worker
