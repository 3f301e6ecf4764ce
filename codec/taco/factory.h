// The codec taco (format.h). For collectives see flat.h.
#ifndef LONGHAUL_CODEC_TACO_FACTORY_H_
#define LONGHAUL_CODEC_TACO_FACTORY_H_

#include <memory>

#include "codec/codec.h"
#include "codec/taco/format.h"

namespace longhaul::codec::taco {

// `params` are in range.
std::unique_ptr<const Codec> Create(const Params& params);

}  // namespace longhaul::codec::taco

#endif  // LONGHAUL_CODEC_TACO_FACTORY_H_
