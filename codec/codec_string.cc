#include "codec/codec_string.h"

#include <charconv>

namespace longhaul::codec {

StatusOr<CodecText> SplitCodecString(std::string_view text) {
  CodecText result{.text = std::string(text)};
  const size_t colon = text.find(':');
  result.name = std::string(text.substr(0, colon));
  if (result.name.empty()) {
    return absl::InvalidArgumentError("a codec has a name, as in 'tah' or 'fixed:bits=4'");
  }
  if (colon == std::string_view::npos) return result;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      return InvalidArgument(
          "'{}': after ':' come key=value pairs with commas between; '{}' is not one", text, item);
    }
    const std::string key(item.substr(0, equals));
    for (const auto& [known, value] : result.parameters) {
      if (known == key) {
        return InvalidArgument("'{}': '{}' is given twice", text, key);
      }
    }
    result.parameters.emplace_back(key, std::string(item.substr(equals + 1)));
    if (comma == std::string_view::npos) return result;
    rest = rest.substr(comma + 1);
  }
}

bool ParseUnsigned(std::string_view text, uint32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseReal(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace longhaul::codec
