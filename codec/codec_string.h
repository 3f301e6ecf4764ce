// The text form of a codec, taken apart: "tah:p=0.8,tile=64" is a name and parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

struct CodecText {
  std::string text;  // all of it
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;
  // The codec string behind a '/', for a family that leaves work to another codec (family.h).
  std::string other = {};
};

// kInvalidArgument for text that is not name[:key=value[,key=value...]] or has a key twice. Does
// not look for a '/'.
StatusOr<CodecText> SplitCodecString(std::string_view text);

// False for text that is not one number as a whole.
bool ParseUnsigned(std::string_view text, uint32_t* value);
bool ParseReal(std::string_view text, double* value);

}  // namespace longhaul::codec
