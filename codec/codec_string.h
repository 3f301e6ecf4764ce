// The text form of a codec, taken apart: "tah:p=0.8,tile=64" is a name and parameters.
#ifndef LONGHAUL_CODEC_CODEC_STRING_H_
#define LONGHAUL_CODEC_CODEC_STRING_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace longhaul::codec {

struct CodecString {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;
};

// kInvalidArgument for text that is not name[:key=value[,key=value...]] or names a key twice.
StatusOr<CodecString> SplitCodecString(std::string_view text);

// The candidate nearest to `word`, if near enough to be a typing mistake; else "".
std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates);

// Whole decimal numbers; false for anything else.
bool ParseUnsigned(std::string_view text, uint32_t* value);
bool ParseReal(std::string_view text, double* value);

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_CODEC_STRING_H_
