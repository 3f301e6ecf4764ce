// Encodes and decodes whole tensors on the CPU: payloads of tah in the format of format.h. The
// caller has checked the arguments. `payload` has Layout::end bytes and needs no alignment.
// `parallel` may be null.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/tah/format.h"

namespace longhaul::codec::tah::cpu {

// Returns the bytes of Encode's scratch memory: an int32, a sort key, for each allocation tile of a
// sample. The memory must be aligned to 4 bytes.
uint64_t ScratchBytes(const Layout& layout);

// Writes the payload. Returns the number of tiles with a NaN or an infinity.
uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* scratch, std::byte* payload);

// Returns kInvalidArgument if a sample's exponent is out of range, or if its precision bits mark a
// wrong number of allocation tiles.
Status Decode(const std::byte* payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out);

}  // namespace longhaul::codec::tah::cpu
