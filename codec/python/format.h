// python: a codec that a user writes as a class of Python, for research. A process beside this one
// runs the class (process.h). It is slow: every tensor goes through a socket and through numpy.
//
//   python:MODULE:CLASS[,bits=B][,key=value...]     "python:my_codec:TopK,bits=6,share=0.1"
//
// `bits` is the most that the class writes for each element, 32 without it. The class alone knows
// how long a blob will be, and programs without Python must know the largest: the planner, and
// receivers, which refuse longer blobs. A plan counts on blobs of the largest size. All other keys
// are arguments of the class.
//
//   payload section  bytes
//   name             2 + n: a uint16, n; then the codec string, n bytes
//   body             what `encode` of the class returned
//
//   largest payload = 2 + n + ceil(elements x bits / 8) + 256, the last for scales and lengths
//
// Parameters in the header: the first 16 bytes of the SHA-256 of the codec string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "codec/blob.h"

namespace longhaul::codec::python {

inline constexpr CodecId kId{12};
inline constexpr double kMostBits = 64, kUsualBits = 32;
// The longest codec string: every blob has it.
inline constexpr size_t kLongestName = 255;
inline constexpr uint64_t kRoom = 256;

struct Params {
  std::string module, name;  // "my_codec", "TopK"
  double bits = kUsualBits;
  std::map<std::string, std::string> arguments;  // of the class
};

// Returns the canonical codec string: with bits, the arguments in the order of their keys.
std::string CodecString(const Params& params);
// Returns the parameters in headers of the codec with this canonical string.
CodecParameters ToHeader(const std::string& codec_string);

// Bytes of the section `name`, for a canonical codec string.
inline uint64_t NameBytes(const std::string& codec_string) {
  return sizeof(uint16_t) + codec_string.size();
}
// The largest body of a tensor of this shape, which must have passed CheckShape.
uint64_t MostBodyBytes(const Shape& shape, double bits);

// Writes the section `name` to `payload`, which has NameBytes.
void WriteName(const std::string& codec_string, std::byte* payload);
// Returns whether the payload, which may be hostile, begins with the section of this codec string.
bool HasName(const std::string& codec_string, std::span<const std::byte> payload);
// Reads the section `name` of a payload, which may be hostile. Returns the codec string.
// kInvalidArgument: the payload ends before the section does.
StatusOr<std::string> ReadName(std::span<const std::byte> payload);

}  // namespace longhaul::codec::python
