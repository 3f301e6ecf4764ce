// The codec aqsgd (format.h).
#ifndef LONGHAUL_CODEC_AQSGD_FACTORY_H_
#define LONGHAUL_CODEC_AQSGD_FACTORY_H_

#include <memory>

#include "codec/aqsgd/format.h"
#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec::aqsgd {

// `params` are in range.
std::unique_ptr<const Codec> Create(const Params& params);

Family Row();
// Its part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::aqsgd

#endif  // LONGHAUL_CODEC_AQSGD_FACTORY_H_
