// The codec zip (format.h).
#ifndef LONGHAUL_CODEC_ZIP_FACTORY_H_
#define LONGHAUL_CODEC_ZIP_FACTORY_H_

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec::zip {

std::unique_ptr<const Codec> Create();

Family Row();
// Its part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::zip

#endif  // LONGHAUL_CODEC_ZIP_FACTORY_H_
