// Splits the text form of a codec: "tah:p=0.8,tile=64" is a name and parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

struct CodecText {
  std::string text;  // the whole text
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;
  // The codec string behind a '/', for a family that uses another codec (family.h).
  std::string other = {};
};

// kInvalidArgument for text that is not name[:key=value[,key=value...]] or has a key twice. Does
// not look for a '/'.
StatusOr<CodecText> SplitCodecString(std::string_view text);

// False unless the whole text is one number.
bool ParseUnsigned(std::string_view text, uint32_t* value);
bool ParseReal(std::string_view text, double* value);

}  // namespace longhaul::codec
