#include "codec/spec.h"

#include "codec/registry.h"

namespace longhaul::codec {

CodecSpec::CodecSpec(std::string_view text) : text_(text), codec_(ParseCodec(text)) {}

std::string_view CodecSpec::family() const {
  return codec_.ok() ? ToString((*codec_)->kind().id) : std::string_view(text_);
}

}  // namespace longhaul::codec
