#include "codec/taco/format.h"

#include <fmt/format.h>

#include <bit>

#include "codec/codec_string.h"
#include "codec/tile.h"

namespace longhaul::codec::taco {

std::string_view ToString(Format format) {
  switch (format) {
    case Format::kE4m3:
      return "e4m3";
    case Format::kE5m2:
      return "e5m2";
    case Format::kInt8:
      return "int8";
  }
  return "unknown format";
}

Layout MakeLayout(uint64_t elements, const Params& params) {
  Layout layout;
  layout.blocks = (elements + params.block - 1) / params.block;
  layout.codes = AlignSection(4 * layout.blocks);
  layout.end = layout.codes + layout.blocks * params.block;
  return layout;
}

std::string CodecString(const Params& params) {
  return fmt::format("taco:format={},block={}", ToString(params.format), params.block);
}

bool Possible(const Params& params) {
  return params.format >= Format::kE4m3 && params.format <= Format::kInt8 &&
         params.block >= kMinBlock && params.block <= kMaxBlock &&
         std::has_single_bit(params.block);
}

bool SetParameter(std::string_view key, std::string_view value, Params* params) {
  Params changed = *params;
  if (key == "format") {
    bool known = false;
    for (const Format one : {Format::kE4m3, Format::kE5m2, Format::kInt8}) {
      if (value != ToString(one)) continue;
      changed.format = one;
      known = true;
    }
    if (!known) return false;
  } else if (key != "block" || !ParseUnsigned(value, &changed.block)) {
    return false;
  }
  if (!Possible(changed)) return false;
  *params = changed;
  return true;
}

CodecParameters ToHeader(const Params& params) {
  CodecParameters parameters{};
  parameters[0] = static_cast<std::byte>(params.format);
  StoreU16(static_cast<uint16_t>(params.block), &parameters[2]);
  return parameters;
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  const Params params{.format = static_cast<Format>(parameters[0]),
                      .block = LoadU16(&parameters[2])};
  if (!Possible(params) || ToHeader(params) != parameters) {
    return InvalidArgument(
        "expected the blob's parameters of taco to be a format of 1 to 3, a block of 32, "
        "64, 128, 256 or 512, and zeros; got format {}, block {}",
        static_cast<int>(parameters[0]), params.block);
  }
  return params;
}

}  // namespace longhaul::codec::taco
