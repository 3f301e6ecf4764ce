// Checks the arguments of the functions of flat.h, for the host and for a GPU (cuda_taco.h).
//
// Threads: pure functions. Errors: kInvalidArgument.
#pragma once

#include <cstdint>
#include <string_view>

#include "codec/taco/flat.h"

namespace longhaul::codec::taco {

// Checks `params`, elements and their payload: ranges, sizes, null pointers and alignment. Error
// messages call the elements `what`. `payload_bytes` may be more than the payload needs.
Status CheckFlat(std::string_view what, const void* elements_at, Dtype dtype, uint64_t elements,
                 const Params& params, const void* payload, uint64_t payload_bytes);
// Checks all arguments of TacoReduce in the same way.
Status CheckReduce(const TacoReduceArgs& args);

}  // namespace longhaul::codec::taco
