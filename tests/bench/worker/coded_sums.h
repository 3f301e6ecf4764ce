// Collectives of a benchmark: numbers that ranks sum or gather go through a codec first, and the
// sums of more than two ranks once more, as those of taco do (transport/collective/taco). They show
// what a codec would cost in learning that no collective has yet; nothing is sent as codes.
#pragma once

#include <memory>

#include "base/cuda/device.h"
#include "codec/codec.h"
#include "transport/collective/communicator.h"

namespace longhaul::worker::testing {

// `below` must be lossless and must not be null. `device`: that of `below`; null: host memory.
// Bytes are counted as if blobs were sent. kInvalidArgument: the codec remembers tensors, its blobs
// have no fixed size, or it does not run on the device.
StatusOr<std::unique_ptr<collective::Communicator>> CodedSums(
    std::shared_ptr<collective::Communicator> below, const cuda::Device* device,
    std::shared_ptr<const codec::Codec> codec);

}  // namespace longhaul::worker::testing
