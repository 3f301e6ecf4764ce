// The codec `zip`.
#ifndef LONGHAUL_CODEC_ZIP_FACTORY_H_
#define LONGHAUL_CODEC_ZIP_FACTORY_H_

#include <memory>

#include "codec/codec.h"

namespace longhaul::codec::zip {

std::unique_ptr<const Codec> Create();

}  // namespace longhaul::codec::zip

#endif  // LONGHAUL_CODEC_ZIP_FACTORY_H_
