// Splits a codec string, for example "tah:p=0.8,tile=64", into the codec's name and parameters.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

struct CodecText {
  std::string text;  // the whole text that was split
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;  // keys and values
  // For a family that uses another codec (family.h): the codec string behind the '/'. ParseCodec
  // (registry.h) sets it.
  std::string other = {};
};

// Splits name[:key=value[,key=value...]]. Returns kInvalidArgument for any other text, and if a key
// comes twice. A '/' has no special meaning here.
StatusOr<CodecText> SplitCodecString(std::string_view text);

// Parse the whole text as one decimal number. Return false for any other text, also for a number
// out of range; *value is then unspecified. ParseReal also takes "inf" and "nan".
bool ParseUnsigned(std::string_view text, uint32_t* value);
bool ParseReal(std::string_view text, double* value);

}  // namespace longhaul::codec
