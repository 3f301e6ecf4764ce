// tah on the CPU: payloads as format.h has them. The arguments have been checked; `payload` has
// Layout::end bytes and needs no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/tah/format.h"

namespace longhaul::codec::tah::cpu {

// Encode's scratch: a sort key per allocation tile of a sample.
uint64_t ScratchBytes(const Layout& layout);

// Returns the number of tiles with a NaN or an infinity.
uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* scratch, std::byte* payload);

// kInvalidArgument when a sample's exponent is out of range or its precision bits are not as many
// as the shape asks for.
Status Decode(const std::byte* payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out);

}  // namespace longhaul::codec::tah::cpu
