// The codec predict (format.h).
#ifndef LONGHAUL_CODEC_PREDICT_FACTORY_H_
#define LONGHAUL_CODEC_PREDICT_FACTORY_H_

#include <memory>

#include "codec/codec.h"
#include "codec/predict/format.h"

namespace longhaul::codec::predict {

// `params` are in range. `other`, which codes the differences, remembers nothing.
std::unique_ptr<const Codec> Create(const Params& params, std::unique_ptr<const Codec> other);

}  // namespace longhaul::codec::predict

#endif  // LONGHAUL_CODEC_PREDICT_FACTORY_H_
