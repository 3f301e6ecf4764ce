#include "codec/python/format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/hash.h"

namespace longhaul::codec::python {
namespace {

// The value of a hexadecimal digit in lower case.
unsigned DigitOf(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

}  // namespace

std::string CodecString(const Params& params) {
  std::string text =
      fmt::format("python:{}:{},bits={:.9g}", params.module, params.name, params.bits);
  for (const auto& [key, value] : params.arguments) text += fmt::format(",{}={}", key, value);
  return text;
}

CodecParameters ToHeader(const std::string& codec_string) {
  const std::string digest = Sha256Hex(codec_string);
  CodecParameters parameters{};
  for (size_t k = 0; k < parameters.size(); ++k) {
    parameters[k] =
        static_cast<std::byte>(16 * DigitOf(digest[2 * k]) + DigitOf(digest[2 * k + 1]));
  }
  return parameters;
}

uint64_t MostBodyBytes(const Shape& shape, double bits) {
  return static_cast<uint64_t>(std::ceil(static_cast<double>(shape.elements()) * bits / 8)) + kRoom;
}

void WriteName(const std::string& codec_string, std::byte* payload) {
  const auto length = static_cast<uint16_t>(codec_string.size());
  std::memcpy(payload, &length, sizeof length);
  std::memcpy(payload + sizeof length, codec_string.data(), codec_string.size());
}

bool HasName(const std::string& codec_string, std::span<const std::byte> payload) {
  uint16_t length = 0;
  if (payload.size() < NameBytes(codec_string)) return false;
  std::memcpy(&length, payload.data(), sizeof length);
  return length == codec_string.size() &&
         std::memcmp(payload.data() + sizeof length, codec_string.data(), length) == 0;
}

StatusOr<std::string> ReadName(std::span<const std::byte> payload) {
  uint16_t length = 0;
  if (payload.size() >= sizeof length) std::memcpy(&length, payload.data(), sizeof length);
  if (length == 0 || payload.size() < sizeof length + length) {
    return InvalidArgument("expected a codec string at the start of the payload; {} bytes came",
                           payload.size());
  }
  return std::string(reinterpret_cast<const char*>(payload.data()) + sizeof length, length);
}

}  // namespace longhaul::codec::python
