// The codec tah (format.h).
#ifndef LONGHAUL_CODEC_TAH_FACTORY_H_
#define LONGHAUL_CODEC_TAH_FACTORY_H_

#include <memory>

#include "codec/codec.h"
#include "codec/tah/format.h"

namespace longhaul::codec::tah {

// `params` are Possible.
std::unique_ptr<const Codec> Create(const Params& params);

}  // namespace longhaul::codec::tah

#endif  // LONGHAUL_CODEC_TAH_FACTORY_H_
