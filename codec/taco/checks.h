// Checks of the arguments of flat.h's functions, on the host and on a GPU.
//
// Threads: pure functions. Errors: kInvalidArgument.
#pragma once

#include <cstdint>
#include <string_view>

#include "codec/taco/flat.h"

namespace longhaul::codec::taco {

// `what` names the elements in messages.
Status CheckFlat(std::string_view what, const void* elements_at, Dtype dtype, uint64_t elements,
                 const Params& params, const void* payload, uint64_t payload_bytes);
Status CheckReduce(const TacoReduceArgs& args);

}  // namespace longhaul::codec::taco
