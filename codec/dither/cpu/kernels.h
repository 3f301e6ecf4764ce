// Encodes and decodes whole tensors on the CPU: payloads of dither in the format of format.h. The
// caller has checked the arguments: Possible(params) is true, and the tensor is not empty. Payloads
// need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "codec/dither/format.h"

namespace longhaul::codec::dither::cpu {

// Writes the payload, and returns its size in bytes. Adds the number of blocks with a NaN or an
// infinity to *nonfinite. `payload` has room for PayloadBytes(layout, layout.groups *
// layout.group_words) bytes.
uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* payload, uint64_t* nonfinite);

// `payload`: may be hostile. Returns kInvalidArgument if no encoder writes it. `parallel`: as in
// Context, may be null.
Status Decode(std::span<const std::byte> payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out);

}  // namespace longhaul::codec::dither::cpu
