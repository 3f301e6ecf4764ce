#include "codec/aqsgd/format.h"

#include <fmt/format.h>

#include <algorithm>

#include "codec/tile.h"

namespace longhaul::codec::aqsgd {

Layout MakeLayout(const Shape& shape, const Params& params) {
  const uint64_t samples = shape.samples;
  const uint64_t tokens = shape.tokens;
  const uint64_t channels = shape.channels;
  Layout layout;
  layout.checks = AlignSection(8 * samples);
  layout.kinds = layout.checks + AlignSection(8 * samples);
  layout.exponents = layout.kinds + AlignSection(samples);
  layout.variable = layout.exponents + AlignSection(2 * samples);
  layout.scales_bytes = AlignSection(2 * channels);
  layout.whole_bytes = AlignSection(2 * tokens * channels);
  layout.tiles_per_token = (channels + kTile - 1) / kTile;
  layout.difference_bytes =
      AlignSection(tokens * layout.tiles_per_token * params.bits * (kTile / 8));
  return layout;
}

uint64_t PayloadBytes(const Shape& shape, const Params& params, uint64_t differences) {
  const Layout layout = MakeLayout(shape, params);
  return layout.variable + (differences > 0 ? layout.scales_bytes : 0) +
         differences * layout.difference_bytes + (shape.samples - differences) * layout.whole_bytes;
}

// In the number of differences the size is linear but for the scales, so its extremes are at 0, 1
// and all of them.
uint64_t MaxPayloadBytes(const Shape& shape, const Params& params) {
  return std::max({PayloadBytes(shape, params, 0), PayloadBytes(shape, params, 1),
                   PayloadBytes(shape, params, shape.samples)});
}

uint64_t MinPayloadBytes(const Shape& shape, const Params& params) {
  return std::min({PayloadBytes(shape, params, 0), PayloadBytes(shape, params, 1),
                   PayloadBytes(shape, params, shape.samples)});
}

uint64_t RecordBytes(const Shape& shape) {
  if (shape.samples == 0 || shape.tokens == 0 || shape.channels == 0) return 0;
  return kRecordHeaderBytes + AlignSection(2 * uint64_t{shape.tokens} * shape.channels);
}

std::string CodecString(const Params& params) {
  return fmt::format("aqsgd:bits={}", params.bits);
}

CodecParameters ToHeader(const Params& params) {
  CodecParameters parameters{};
  parameters[0] = static_cast<std::byte>(params.bits);
  return parameters;
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  Params params;
  params.bits = static_cast<uint32_t>(parameters[0]);
  if (params.bits < kMinBits || params.bits > kMaxBits) {
    return InvalidArgument("the blob's parameters of aqsgd are impossible: bits {}", params.bits);
  }
  if (ToHeader(params) != parameters) {
    return absl::InvalidArgumentError("the blob's parameters of aqsgd do not end in zeros");
  }
  return params;
}

}  // namespace longhaul::codec::aqsgd
